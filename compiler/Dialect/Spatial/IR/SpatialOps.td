// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel graph (compiler/Forms/Kernel.h) as text: every record of it has one operation or attribute here, and no
// more. docs/dialects/spatial.md shows it whole.

#ifndef MILLRACE_DIALECT_SPATIAL_OPS
#define MILLRACE_DIALECT_SPATIAL_OPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"

def Spatial_Dialect : Dialect {
  let name = "spatial";
  let cppNamespace = "::millrace::spatial";
  let summary = "a model as the grid sees it: affine kernels on tensors in memory";
  let description = [{
    A module of this level holds one `spatial.graph` and, where something runs on the host, a module `@host` with the
    functions of its host calls. Layouts, tiles, PEs and cycles are not decided here.
  }];
  let dependentDialects = [
    "::mlir::func::FuncDialect", "::mlir::tensor::TensorDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"
  ];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

//===-- Types and attributes ----------------------------------------------------------------------------------------===//

class Spatial_Type<string name, string keyword> : TypeDef<Spatial_Dialect, name> {
  let mnemonic = keyword;
}

def Spatial_TensorType : Spatial_Type<"Tensor", "tensor"> {
  let summary = "a tensor in memory; shape and element type stand at its spatial.tensor";
}
def Spatial_OperandType : Spatial_Type<"Operand", "operand"> {
  let summary = "what a kernel reads beside its contraction, one element per parallel and running point";
}
def Spatial_Tensor : Type<CPred<"::llvm::isa<::millrace::spatial::TensorType>($_self)">, "tensor in memory">,
    BuildableType<"$_builder.getType<::millrace::spatial::TensorType>()">;
def Spatial_Operand : Type<CPred<"::llvm::isa<::millrace::spatial::OperandType>($_self)">, "operand of a kernel">,
    BuildableType<"$_builder.getType<::millrace::spatial::OperandType>()">;

class Spatial_EnumAttr<EnumAttrInfo info, string keyword> : EnumAttr<Spatial_Dialect, info, keyword>;

def Spatial_Role : I32EnumAttr<"Role", "what a tensor is for", [
    I32EnumAttrCase<"Input", 0, "input">, I32EnumAttrCase<"Constant", 1, "constant">,
    I32EnumAttrCase<"Intermediate", 2, "intermediate">, I32EnumAttrCase<"Output", 3, "output">]> {
  let cppNamespace = "::millrace::spatial";
  let genSpecializedAttr = 0;
}
def Spatial_RoleAttr : Spatial_EnumAttr<Spatial_Role, "role">;

def Spatial_LoopKind : I32EnumAttr<"LoopKind", "what a loop does", [
    I32EnumAttrCase<"Parallel", 0, "parallel">, I32EnumAttrCase<"Running", 1, "running">,
    I32EnumAttrCase<"Contracted", 2, "contracted">]> {
  let cppNamespace = "::millrace::spatial";
  let genSpecializedAttr = 0;
}
def Spatial_LoopKindAttr : Spatial_EnumAttr<Spatial_LoopKind, "kind">;

def Spatial_HostAttr : AttrDef<Spatial_Dialect, "Host"> {
  let mnemonic = "host";
  let summary = "which tensor of the host an input or output is, and how its elements lie in it";
  let description = [{
    `<"name" : "type" [shape]>`, then as far as they are not empty or zero: `loop extent DIM step * host DIM step` for
    each loop of a mapping that is not the plain row-major order (R15: each iteration adds `step` to the index `DIM` of
    the grid's tensor and of the host's), `start [..]` the first index of every host dimension, `scale` and `zero` of a
    quantised input, `fill` (raw bits) for host indices outside the shape, `extent` of the table whose indices these are.

    ```mlir
    host <"x" : "float" [1, 3, 224, 224] loop 112 dim 1 by 1 host 2 by 2 start [0, 0, -3, -3] fill 0>
    ```
  }];
  let parameters = (ins StringRefParameter<"ONNX value name">:$name, StringRefParameter<"ONNX element type">:$type,
      ArrayRefParameter<"int64_t">:$shape,
      ArrayRefParameter<"int64_t", "extent, dim, step, host dim, host step of every loop">:$loops,
      ArrayRefParameter<"int64_t">:$start, "::mlir::FloatAttr":$scale, "int64_t":$zero, "uint32_t":$fill, "int64_t":$extent);
  let hasCustomAssemblyFormat = 1;
}

//===-- The graph ---------------------------------------------------------------------------------------------------===//

class Spatial_Op<string mnemonic, list<Trait> traits = []> : Op<Spatial_Dialect, mnemonic, traits>;

def Spatial_GraphOp : Spatial_Op<"graph", [IsolatedFromAbove, NoTerminator, SingleBlock, NoRegionArguments]> {
  let summary = "tensors, then kernels and host calls in an executable order";
  let description = [{
    The verifier asks the kernel graph's own `verify`: types, ranks, loops, every point of a result written once and
    before it is read.

    ```mlir
    spatial.graph "model" {
      %x = spatial.tensor input "x" lanes 1 host <"x" : "float" [4, 32]> : tensor<4x32xf16>
      %y = spatial.tensor output "y" lanes 1 host <"y" : "float" [4, 32]> : tensor<4x32xf16>
      spatial.kernel "relu" from "Relu_0" (%p0 = parallel 4, %p1 = parallel 32) {
        %0 = spatial.operand %x[%p0, %p1]
        %1 = spatial.read %0
        %2 = spatial.alu cvt.f16.f32(%1)
        %3 = spatial.alu relu.f32(%2)
        %4 = spatial.alu cvt.f32.f16(%3)
        spatial.write %4 to %y[%p0, %p1]
      }
    }
    ```
  }];
  let arguments = (ins StrAttr:$name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Spatial_TensorOp : Spatial_Op<"tensor", [HasParent<"GraphOp">, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a tensor in memory";
  let description = [{
    Dimension `lanes` lies along the lanes, the others are rows. Elements: i8, ui8, i32, f16, bf16, f32, f8E4M3FN,
    f8E5M2. Constants have data; with `splat` the graph holds one element that stands for all. `onnx_value` names the
    ONNX value that the tensor was formed to hold. With `unbounded` it may hold infinities or NaN: products with 0 keep
    no lane of it apart from the others. With `uniform` all lanes of a row hold one value, in a whole vector, and meet
    the lanes of other tensors wherever these begin.

    ```mlir
    %bias = spatial.tensor constant "bias" lanes 0 splat : tensor<64xf32> = dense<1.0>
    ```
  }];
  let arguments = (ins Spatial_RoleAttr:$role, StrAttr:$name, TypeAttrOf<AnyRankedTensor>:$type, I64Attr:$lanes,
      OptionalAttr<Spatial_HostAttr>:$host, UnitAttr:$splat, OptionalAttr<ElementsAttr>:$data,
      OptionalAttr<StrAttr>:$onnx_value, UnitAttr:$unbounded, UnitAttr:$uniform);
  let results = (outs Spatial_Tensor:$result);
  let assemblyFormat = [{
    custom<Role>($role) $name `lanes` $lanes (`host` $host^)? (`splat` $splat^)? (`unbounded` $unbounded^)? (`uniform` $uniform^)? attr-dict-with-keyword `:` custom<TypeAndData>($type, $data)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = "::mlir::RankedTensorType getTensorType() { return ::mlir::cast<::mlir::RankedTensorType>(getType()); }";
}

def Spatial_CallOp : Spatial_Op<"call", [HasParent<"GraphOp">, AttrSizedOperandSegments]> {
  let summary = "a function on the host between kernels, for what no form covers";
  let description = [{
    `number` is the call's place among the graph's host calls, where that is not the order of the text. `device` is where it
    runs, "cpu" or "gpu", if that was chosen.

    ```mlir
    spatial.call "Gather_3" @host_1(%indices, %table) to (%rows)
    ```
  }];
  let arguments = (ins StrAttr:$name, FlatSymbolRefAttr:$function, Variadic<Spatial_Tensor>:$inputs,
      Variadic<Spatial_Tensor>:$outputs, OptionalAttr<I64Attr>:$number, OptionalAttr<StrAttr>:$device);
  let assemblyFormat = "$name $function `(` $inputs `)` `to` `(` $outputs `)` attr-dict";
  let hasVerifier = 1;
}

def Spatial_KernelOp : Spatial_Op<"kernel", [HasParent<"GraphOp">, NoTerminator, SingleBlock, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one affine loop nest: a sum of products, an epilogue, stored results";
  let description = [{
    Loops are the arguments of the body: parallel (an index of the results), running (reduced in the VXM), contracted
    (summed in the MXM). The body holds, in this order, terms, operands, nodes of the epilogue, writes. `from` names
    the ONNX nodes. `number` is the kernel's place among the graph's kernels, where that is not the order of the text.
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$provenance, DenseI64ArrayAttr:$extents,
      TypedArrayAttrBase<Spatial_LoopKindAttr, "kinds of loops">:$kinds, OptionalAttr<I64Attr>:$number);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

//===-- In a kernel -------------------------------------------------------------------------------------------------===//

class Spatial_KernelPart<string mnemonic, list<Trait> traits = []> : Spatial_Op<mnemonic, !listconcat([HasParent<"KernelOp">], traits)>;

def Spatial_TermOp : Spatial_KernelPart<"term", [AttrSizedOperandSegments]> {
  let summary = "adds a * w, summed over the contracted loops, to the accumulator";
  let description = [{
    `a` streams through the MXM, `w` is installed. Indices outside the shape read `pad` (raw bits). `macs` counts what
    the model asks for, unpadded; nothing for helpers.

    ```mlir
    spatial.term %x[%p0, %c2 + %p1 * 2 - 1] pad 15360 * %w[%p3, %c2] macs 4096
    ```
  }];
  let arguments = (ins Spatial_Tensor:$a, Variadic<Index>:$aLoops, Spatial_Tensor:$w, Variadic<Index>:$wLoops,
      AffineMapAttr:$aMap, I64Attr:$aPad, AffineMapAttr:$wMap, I64Attr:$wPad, DefaultValuedAttr<I64Attr, "0">:$macs);
  let assemblyFormat = [{
    custom<Access>($a, $aLoops, $aMap, $aPad) `*` custom<Access>($w, $wLoops, $wMap, $wPad) (`macs` $macs^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Spatial_OperandOp : Spatial_KernelPart<"operand", [AttrSizedOperandSegments]> {
  let summary = "a tensor that the epilogue reads, over parallel and running loops";
  let description = [{
    With `lookup`, the index of one dimension is data: what a tensor of i32 holds is added to it.

    ```mlir
    spatial.operand %table[0, %p1] lookup dim 0 %ids[0, %p0, 0]
    ```
  }];
  let arguments = (ins Spatial_Tensor:$tensor, Variadic<Index>:$loops, AffineMapAttr:$map, I64Attr:$pad,
      Optional<Spatial_Tensor>:$indices, Variadic<Index>:$indexLoops, OptionalAttr<AffineMapAttr>:$indexMap,
      OptionalAttr<I64Attr>:$dim);
  let results = (outs Spatial_Operand:$result);
  let assemblyFormat = [{
    custom<Access>($tensor, $loops, $map, $pad) custom<Lookup>($indices, $indexLoops, $indexMap, $dim) attr-dict
  }];
  let hasVerifier = 1;
}

def Spatial_AccumulatorOp : Spatial_KernelPart<"accumulator"> {
  let summary = "the sum of the terms: fp32 bits, or int32 of integer terms";
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict";
}

def Spatial_ReadOp : Spatial_KernelPart<"read"> {
  let summary = "an operand's raw bits, zero-extended";
  let arguments = (ins Spatial_Operand:$operand);
  let results = (outs I32:$result);
  let assemblyFormat = "$operand attr-dict";
}

def Spatial_ImmediateOp : Spatial_KernelPart<"immediate"> {
  let summary = "the same 32 bits at every point";
  let arguments = (ins I64Attr:$bits);
  let results = (outs I32:$result);
  let assemblyFormat = "custom<Bits>($bits) attr-dict";
  let hasVerifier = 1;
}

def Spatial_AluOp : Spatial_KernelPart<"alu"> {
  let summary = "an operation of the VXM, by the name that the assembly gives it (docs/spec/isa.md)";
  let arguments = (ins StrAttr:$mnemonic, Variadic<I32>:$inputs);
  let results = (outs I32:$result);
  let assemblyFormat = "custom<Mnemonic>($mnemonic) `(` $inputs `)` attr-dict";
  let hasVerifier = 1;
}

def Spatial_ReduceOp : Spatial_KernelPart<"reduce"> {
  let summary = "an operation of two operands over all running loops; what uses it runs once per parallel point";
  let arguments = (ins StrAttr:$mnemonic, I32:$input);
  let results = (outs I32:$result);
  let assemblyFormat = "custom<Mnemonic>($mnemonic) `(` $input `)` attr-dict";
  let hasVerifier = 1;
}

def Spatial_WriteOp : Spatial_KernelPart<"write"> {
  let summary = "stores the low bytes of a node as the tensor's type, over parallel loops";
  let arguments = (ins I32:$value, Spatial_Tensor:$tensor, Variadic<Index>:$loops, AffineMapAttr:$map, I64Attr:$pad);
  let assemblyFormat = "$value `to` custom<Access>($tensor, $loops, $map, $pad) attr-dict";
  let hasVerifier = 1;
}

#endif // MILLRACE_DIALECT_SPATIAL_OPS
