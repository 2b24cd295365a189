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

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  // expected-error @+1 {{has rows of 12 elements; use a multiple of 8}}
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x12xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  // expected-error @+1 {{goes along dimension 2 of 'memref<64x64xf16>'}}
  %r = tile.load_rows %x[%i, %0] along 2 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  // expected-error @+1 {{has a tile of indices in dimension 0, along which the rows lie; give a scalar}}
  %r = tile.load_rows %x[%i, %0] along 0 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{lies along dimensions 1 and 1 of 'memref<64x64xf16>'; name two of it}}
  %t = tile.load_table %x[%0, %0] along [1, 1] : (memref<64x64xf16>, index, index) -> vector<8x16xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  %v = arith.constant dense<0.0> : vector<32x16xf16>
  // expected-error @+1 {{writes the rows of all lanes to one place; give it a tile of indices, or a mask}}
  tile.store_rows %r, %x[%0, %0] along 1 : vector<32x16xf16>, memref<64x64xf16>, index, index
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  %t = tile.load_table %x[%0, %0] along [0, 1] : (memref<64x64xf16>, index, index) -> vector<8x16xf16>
  %c = arith.constant dense<0.0> : vector<32x16xf32>
  // expected-error @+1 {{multiplies 'vector<32x16xf16>' by a table 'vector<8x16xf16>' into 'vector<32x16xf32>'}}
  %d = tile.dot %r, %t, %c : vector<32x16xf16>, vector<8x16xf16>, vector<32x16xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x24xf16>
  %t = tile.load_table %x[%0, %0] along [0, 1] : (memref<64x64xf16>, index, index) -> vector<8x24xf16>
  %c = arith.constant dense<0.0> : vector<32x8xf32>
  // expected-error @+1 {{adds up 24 products for 8 results; use multiples of 16 and of 8}}
  %d = tile.dot %r, %t, %c : vector<32x24xf16>, vector<8x24xf16>, vector<32x8xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  %t = tile.load_table %x[%0, %0] along [0, 1] : (memref<64x64xf16>, index, index) -> vector<8x16xf16>
  %c = arith.constant dense<0.0> : vector<32x8xf16>
  // expected-error @+1 {{multiplies 'f16' by 'f16' into 'f16'; it takes f16 or bf16 on both sides, and sums in f32}}
  %d = tile.dot %r, %t, %c : vector<32x16xf16>, vector<8x16xf16>, vector<32x8xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  %c = arith.constant dense<0.0> : vector<32x32xf32>
  // expected-error @+1 {{has a second operand that is not the result of tile.load_table or tile.compute_table}}
  %d = tile.dot %r, %r, %c : vector<32x16xf16>, vector<32x16xf16>, vector<32x32xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  %t = tile.load_table %x[%0, %0] along [0, 1] : (memref<64x64xf16>, index, index) -> vector<8x16xf16>
  // expected-error @+1 {{takes a table; only tile.dot does, as its second operand}}
  %d = arith.addf %t, %t : vector<8x16xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  // expected-error @+1 {{makes 'vector<32xf32>' of 'vector<32x16xf16>'}}
  %d = tile.reduce_rows addf %r : vector<32x16xf16> -> vector<32xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  // expected-error @+1 {{cannot combine elements of 'f16' by 'addi'}}
  %d = tile.reduce_rows addi %r : vector<32x16xf16> -> vector<32xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %v = arith.constant dense<0.0> : vector<32xf32>
  // expected-error @+1 {{makes 'vector<32x16xf16>' of 'vector<32xf32>'}}
  %d = tile.spread %v : vector<32xf32> -> vector<32x16xf16>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %v = arith.constant dense<0.0> : vector<32xf32>
  %w = tile.spread %v : vector<32xf32> -> vector<32x16xf32>
  // expected-error @+1 {{combines lanes of a kernel with rows per lane; combine rows, or use another kernel}}
  %d = tile.reduce addf %v : vector<32xf32>
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %i = tile.iota : vector<32xindex>
  %0 = arith.constant 0 : index
  // expected-error @+1 {{lies in a tensor that the kernel writes; read it as rows, or write to another}}
  %t = tile.load_table %x[%0, %0] along [0, 1] : (memref<64x64xf16>, index, index) -> vector<8x16xf16>
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  // expected-note @+1 {{here}}
  tile.store_rows %r, %x[%i, %0] along 1 : vector<32x16xf16>, memref<64x64xf16>, vector<32xindex>, index
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{ends at (0, 64); it has at least one row and one column}}
  %t = tile.compute_table [%0, %0] upto [0, 64] : vector<8x16xf16> {
  ^bb0(%n: index, %k: index):
    %v = tile.load %x[%n, %k] : (memref<64x64xf16>, index, index) -> f16
    tile.yield %v : f16
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{has a region that takes no two indices; it takes the row and the column}}
  %t = tile.compute_table [%0, %0] upto [64, 64] : vector<8x16xf16> {
  ^bb0(%n: index):
    %v = tile.load %x[%n, %n] : (memref<64x64xf16>, index, index) -> f16
    tile.yield %v : f16
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf32>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  // expected-error @+1 {{has a region that does not yield 'f16'}}
  %t = tile.compute_table [%0, %0] upto [64, 64] : vector<8x16xf16> {
  ^bb0(%n: index, %k: index):
    %v = tile.load %x[%n, %k] : (memref<64x64xf32>, index, index) -> f32
    tile.yield %v : f32
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  %t = tile.compute_table [%0, %0] upto [64, 64] : vector<8x16xf16> {
  ^bb0(%n: index, %k: index):
    // expected-error @+1 {{computes an element of a table; use loads of scalars and elementwise arith and math on scalars}}
    %i = tile.iota : vector<32xindex>
    %v = tile.load %x[%n, %k] : (memref<64x64xf16>, index, index) -> f16
    tile.yield %v : f16
  }
  tile.return
}

// -----

tile.kernel @k(%x: memref<64x64xf16>) attributes {lanes = 32 : i32, programs = 1 : i32} {
  %0 = arith.constant 0 : index
  %i = tile.iota : vector<32xindex>
  %t = tile.compute_table [%0, %0] upto [64, 64] : vector<8x16xf16> {
  ^bb0(%n: index, %k: index):
    // expected-error @+1 {{lies in a tensor that the kernel writes; read it as rows, or write to another}}
    %v = tile.load %x[%n, %k] : (memref<64x64xf16>, index, index) -> f16
    tile.yield %v : f16
  }
  %r = tile.load_rows %x[%i, %0] along 1 : (memref<64x64xf16>, vector<32xindex>, index) -> vector<32x16xf16>
  // expected-note @+1 {{here}}
  tile.store_rows %r, %x[%i, %0] along 1 : vector<32x16xf16>, memref<64x64xf16>, vector<32xindex>, index
  tile.return
}
