// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verifier refuses, and in which words.
// RUN: millrace opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{has 100 lanes; use a multiple of 32 up to 4096}}
tile.kernel @k() attributes {lanes = 100 : i32, programs = 1 : i32} {
  tile.return
}

// -----

// expected-error @+1 {{has -32 lanes; use a multiple of 32 up to 4096}}
tile.kernel @k() attributes {lanes = -32 : i32, programs = 1 : i32} {
  tile.return
}

// -----

// expected-error @+1 {{has 0 programs; at least one runs}}
tile.kernel @k() attributes {lanes = 32 : i32, programs = 0 : i32} {
  tile.return
}

// -----

// expected-error @+1 {{has argument 0 of type 'memref<?xf32>'; arguments are memrefs of static shape and strides}}
tile.kernel @k(%x: memref<?xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  tile.return
}

// -----

// expected-error @+1 {{has argument 0 of type 'f32'; arguments are memrefs of static shape and strides}}
tile.kernel @k(%x: f32) attributes {lanes = 32 : i32, programs = 1 : i32} {
  tile.return
}

// -----

tile.kernel @k() attributes {lanes = 32 : i32, programs = 1 : i32} {
  // expected-error @+1 {{has a result of type 'vector<64xindex>'; tiles of kernel 'k' are vectors of 32 elements}}
  %0 = tile.iota : vector<64xindex>
  tile.return
}

// -----

tile.kernel @k() attributes {lanes = 32 : i32, programs = 1 : i32} {
  // expected-error @+1 {{has different elements; a constant tile has one for all lanes}}
  %0 = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]> : vector<32xi32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<4xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{cannot stand in a tile.kernel; use the tile dialect, elementwise arith and math, scf.for and scf.if}}
  %1 = memref.load %x[%0] : memref<4xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<4xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 4 : index
  // expected-error @+1 {{has index 4 of 4}}
  %1 = tile.load %x[%0] : (memref<4xf32>, index) -> f32
  tile.return
}

// -----

tile.kernel @k(%x: memref<4x4xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{has 1 indices for 'memref<4x4xf32>'; it takes one per dimension}}
  %1 = tile.load %x[%0] : (memref<4x4xf32>, index) -> f32
  tile.return
}

// -----

tile.kernel @k(%x: memref<4xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{moves 'i32', and the elements of 'memref<4xf32>' are 'f32'}}
  %1 = tile.load %x[%0] : (memref<4xf32>, index) -> i32
  tile.return
}

// -----

tile.kernel @k(%x: memref<32xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = tile.iota : vector<32xindex>
  // expected-error @+1 {{has a tile of indices and gives a scalar; give a tile}}
  %1 = tile.load %x[%0] : (memref<32xf32>, vector<32xindex>) -> f32
  tile.return
}

// -----

tile.kernel @k(%x: memref<32xf32>, %m: memref<32xi1>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = tile.iota : vector<32xindex>
  %mask = tile.load %m[%0] : (memref<32xi1>, vector<32xindex>) -> vector<32xi1>
  %z = arith.constant 0 : i32
  // expected-error @+1 {{gives 'i32' to lanes that do not read 'f32'}}
  %1 = tile.load %x[%0] where %mask else %z : (memref<32xf32>, vector<32xindex>, vector<32xi1>, i32) -> vector<32xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<4xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  %v = arith.constant dense<1.0> : vector<32xf32>
  // expected-error @+1 {{writes all lanes to one element; give it a tile of indices, or a mask}}
  tile.store %v, %x[%0] : vector<32xf32>, memref<4xf32>, index
  tile.return
}

// -----

tile.kernel @k() attributes {lanes = 32 : i32, programs = 1 : i32} {
  %v = arith.constant dense<1.0> : vector<32xf32>
  // expected-error @+1 {{cannot combine elements of 'f32' by 'addi'}}
  %1 = tile.reduce addi %v : vector<32xf32>
  tile.return
}

// -----

tile.kernel @k() attributes {lanes = 32 : i32, programs = 1 : i32} {
  %v = arith.constant dense<1.0> : vector<32xf32>
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  scf.for %i = %0 to %1 step %1 {
    // expected-error @+1 {{stands in a loop or branch; combine tiles there and reduce behind it}}
    %2 = tile.reduce addf %v : vector<32xf32>
  }
  tile.return
}

// -----

func.func @f(%x: memref<4xf32>) {
  // expected-error @+1 {{names 'none', which is no kernel of the module}}
  tile.launch @none(%x) : memref<4xf32>
  return
}

// -----

tile.kernel @k(%x: memref<4xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  tile.return
}
func.func @f(%x: memref<5xf32>) {
  // expected-error @+1 {{passes what kernel 'k' does not take; its arguments are 'memref<4xf32>'}}
  tile.launch @k(%x) : memref<5xf32>
  return
}
