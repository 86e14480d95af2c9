#rows = affine_map<(m, n, k) -> (m, k)>
#columns = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>
func.func @main(%a: tensor<MxKxT>, %b: tensor<NxKxT>) -> tensor<MxNxf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<MxNxf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<MxNxf32>) -> tensor<MxNxf32>
  %r = linalg.generic {indexing_maps = [#rows, #columns, #out],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<MxKxT>, tensor<NxKxT>) outs(%filled : tensor<MxNxf32>) {
  ^bb0(%x: T, %y: T, %sum: f32):
    %wide_x = arith.extf %x : T to f32
    %wide_y = arith.extf %y : T to f32
    %p = arith.mulf %wide_x, %wide_y : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  } -> tensor<MxNxf32>
  return %r : tensor<MxNxf32>
}
