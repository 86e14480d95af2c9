func.func @main(%table: tensor<?x64xf32>, %index: tensor<?xi32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %index, %c0 : tensor<?xi32>
  %empty = tensor.empty(%n) : tensor<?x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%index : tensor<?xi32>) outs(%empty : tensor<?x64xf32>) {
  ^bb0(%i: i32, %unused: f32):
    %row = arith.index_cast %i : i32 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %table[%row, %column] : tensor<?x64xf32>
    linalg.yield %x : f32
  } -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
