# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single operations equal the backend test cases of the `onnx` package."""
import re
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases
    CASES = {case.name: case for case in collect_testcases(None)}

# One pattern per family; variants that differ only in element type are left out to keep the test short.
FAMILIES = [
    r"add|add_bcast|sub|mul|mul_bcast|div|div_bcast|pow|pow_bcast_scalar|pow_types_int64_float32|mod_broadcast",
    r"mod_mixed_sign_float32|mod_mixed_sign_int32|sum_example|mean_example|max_example|min_example|prelu_broadcast",
    r"equal|less|greater|less_equal|greater_equal_bcast|and2d|or2d|xor2d|where_example",
    r"bitshift_(left|right)_uint8|bitwise_(and|or|xor)_i32_2d",
    r"relu|neg|abs|sign|sigmoid|tanh|exp|log|sqrt|erf|floor|ceil|round|reciprocal|sin|cos|tan|atan|asinh|sinh",
    r"softplus|softsign|leakyrelu|thresholdedrelu|elu|selu|celu|hardsigmoid|hardswish|mish|gelu_default_1|gelu_tanh_1",
    r"clip|clip_default_inbounds|isnan|isinf_positive|shrink_soft|cast_FLOAT_to_FLOAT16|castlike_FLOAT_to_DOUBLE",
    r"conv_with_strides_padding|conv_with_autopad_same|basic_conv_without_padding|convinteger_with_padding",
    r"conv_with_strides_and_asymmetric_padding|convtranspose|convtranspose_1d|convtranspose_pads",
    r"maxpool_(1d_default|2d_pads|2d_ceil|2d_same_lower|2d_dilations|2d_uint8|3d_default)",
    r"averagepool_(1d_default|2d_pads|2d_pads_count_include_pad|2d_ceil|2d_same_upper|3d_default)",
    r"globalaveragepool|globalmaxpool|matmul_(2d|3d|4d)|matmulinteger|gemm_(all_attributes|transposeB|beta|default_\w+_bias)",
    r"reduce_(sum|mean|max|min|prod|l1|l2|log_sum_exp|sum_square)_(keepdims|do_not_keepdims|negative_axes_keepdims)_random",
    r"argmax_keepdims_random|argmin_no_keepdims_example_select_last_index|softmax_(axis_1|large_number)|logsoftmax_axis_2",
    r"batchnorm_epsilon|instancenorm_example|layer_normalization_(4d_axis2|default_axis)|lrn|rms_normalization_2d_axis1",
    r"reshape_(negative_dim|zero_dim|allowzero_reordered)|flatten_axis2|squeeze|unsqueeze_two_axes|transpose_all_permutations_4",
    r"expand_dim_changed|tile|spacetodepth_example|depthtospace_crd_mode_example|identity|dropout_default|eyelike_with_dtype",
    r"concat_2d_axis_1|concat_3d_axis_negative_2|split_equal_parts_2d_opset18|split_variable_parts_1d_opset18",
    r"slice|slice_neg_steps|slice_negative_axes|constant_pad|edge_pad|reflect_pad|wrap_pad",
    r"scatternd_(add|multiply)|scatter_elements_with_(axis|reduction_max)",
    r"gather_(0|1|negative_indices)|gather_elements_1|gathernd_example_float32|gathernd_example_int32_batch_dim1|onehot_with_axis",
    r"shape|shape_start_1_end_2|size|constant|quantizelinear|quantizelinear_axis|dequantizelinear|dequantizelinear_axis",
    r"dynamicquantizelinear|qlinearconv|qlinearmatmul_2D_(uint8|int8)_float32|quantizelinear_blocked_asymmetric",
    r"resize_(up|down)sample_scales_(nearest|linear|linear_align_corners|linear_half_pixel_symmetric)",
    r"resize_upsample_sizes_nearest_(axes_3_2|ceil_half_pixel|floor_align_corners|round_prefer_ceil_asymmetric)",
    r"resize_(up|down)sample_scales_cubic(_A_n0p5_exclude_outside|_align_corners|_antialias)?|resize_downsample_sizes_linear_antialias",
    r"(lstm|gru|simple_rnn)_(defaults|with_initial_bias|batchwise|bidirectional|reverse)|lstm_with_peepholes|(gru|rnn)_seq_length",
    r"einsum_(transpose|sum|batch_matmul|inner_prod)|triu_neg|tril_pos|cumsum_1d_reverse_exclusive|cumsum_2d_axis_0",
    r"hardmax_(axis_1|one_hot)|lpnormalization_default|l1normalization_axis_1|lppool_(1d_default|2d_pads|2d_same_lower|3d_default)",
    r"cumprod_(1d_reverse_exclusive|2d_axis_0)|tensorscatter(_circular)?|deform_conv_with_(mask_bias|multiple_offset_groups)",
    r"basic_deform_conv_with_padding|roialign_mode_max",
    r"attention_4d_causal|attention_3d_attn_mask|rotary_embedding|mvn|group_normalization_epsilon",
]
NAMES = sorted(name for name in CASES if any(re.fullmatch(f"test_({family})", name) for family in FAMILIES))


def as_array(value):
    """A value of a test case, which some hold as protobuf."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def with_constants(case):
    """The model with its integer and scalar inputs (axes, shapes, zero points) as initializers; the inputs left."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays, outputs = ([as_array(value) for value in values] for values in case.data_sets[0])
    for index in range(len(arrays) - 1, 0, -1):
        array = arrays[index]
        is_shape = model.graph.input[index].name in ("scales", "sizes")
        if array.dtype == np.int64 or array.size <= 1 or is_shape:
            model.graph.initializer.append(numpy_helper.from_array(array, model.graph.input[index].name))
            del model.graph.input[index], arrays[index]
    return model, arrays, outputs


def test_enough_operations_are_covered():
    assert len(NAMES) >= 150


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_gives_what_onnx_says(name, runner, tmp_path):
    model, inputs, expected = with_constants(CASES[name])
    onnx.save(model, tmp_path / "model.onnx")
    for got, want in zip(runner.run(tmp_path / "model.onnx", inputs), expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        # float32 with sums in another order; integers are equal.
        tolerance = 1e-5 if want.dtype.kind == "f" and want.dtype.itemsize > 2 else 1e-3
        exact = want.dtype.kind != "f"
        assert np.array_equal(got, want) if exact else np.allclose(got, want, tolerance, 1e-6, equal_nan=True)
