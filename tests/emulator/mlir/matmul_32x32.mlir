#config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<KIND>, promote_operands = [0, 1], reduction = [0, 0, STEP], subgroup = [1, 1, 0], workgroup = [64, 64, 0]}>
#translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [256, 1, 1] subgroup_size = 64>
#info = #iree_codegen.compilation_info<lowering_config = #config, translation_info = #translation>
func.func @main(%a: tensor<128x128xf16>, %b: tensor<128x128xf16>) -> tensor<128x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<128x128xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<128x128xf32>) -> tensor<128x128xf32>
  %r = linalg.matmul {compilation_info = #info} ins(%a, %b : tensor<128x128xf16>, tensor<128x128xf16>) outs(%filled : tensor<128x128xf32>) -> tensor<128x128xf32>
  return %r : tensor<128x128xf32>
}
