#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
func.func @main(%a8: tensor<128x8x16xi8>, %b8: tensor<128x8x16xi8>, %sa8: tensor<128x8xi8>, %sb8: tensor<128x8xi8>) -> tensor<128x128xf32> {
  %a = flow.tensor.bitcast %a8 : tensor<128x8x16xi8> -> tensor<128x8x32xf4E2M1FN>
  %b = flow.tensor.bitcast %b8 : tensor<128x8x16xi8> -> tensor<128x8x32xf4E2M1FN>
  %sa = flow.tensor.bitcast %sa8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
  %sb = flow.tensor.bitcast %sb8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<128x128xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<128x128xf32>) -> tensor<128x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %sa, %sb : tensor<128x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>, tensor<128x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%filled : tensor<128x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %sx: f8E8M0FNU, %sy: f8E8M0FNU, %sum: f32):
    %wide_x = arith.scaling_extf %x, %sx : f4E2M1FN, f8E8M0FNU to f32
    %wide_y = arith.scaling_extf %y, %sy : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %wide_x, %wide_y : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  } -> tensor<128x128xf32>
  return %r : tensor<128x128xf32>
}
