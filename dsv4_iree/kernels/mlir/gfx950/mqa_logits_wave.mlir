// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Written by tools/generate_wave.py with wave-lang 3.9.1 and IREE 3.13; not by hand.
stream.executable private @mqa_logits_wave {
  stream.executable.export public @mqa_logits_wave workgroups(
      %rows: index, %columns: index, %per_run: index) -> (index, index, index) {
    %c1 = arith.constant 1 : index
    %together = arith.constant 2 : index
    %down = arith.ceildivui %rows, %together : index
    %across = arith.ceildivui %columns, %per_run : index
    // Neighbours in x run at the same time: they read the same keys.
    stream.return %down, %across, %c1 : index, index, index
  }
  builtin.module {
    func.func @mqa_logits_wave(%arg0: !stream.binding, %arg1: !stream.binding, %arg2: !stream.binding, %arg3: !stream.binding, %arg4: !stream.binding, %arg5: !stream.binding, %arg6: !stream.binding, %arg7: !stream.binding, %arg8: !stream.binding, %arg9: index, %arg10: index, %arg11: index, %arg12: index, %arg13: index) attributes {translation_info = #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline workgroup_size = [64, 1, 1] subgroup_size = 64>} {
      %cst = arith.constant dense<0.000000e+00> : vector<1xf32>
      %cst_0 = arith.constant 0xFF800000 : f32
      %cst_1 = arith.constant dense<0> : vector<1xindex>
      %cst_2 = arith.constant dense<2147483647> : vector<1xindex>
      %cst_3 = arith.constant dense<0xFF800000> : vector<1xf32>
      %cst_4 = arith.constant dense<0.000000e+00> : vector<16xf32>
      %c32 = arith.constant 32 : index
      %cst_5 = arith.constant dense<0> : vector<1xi32>
      %c1 = arith.constant 1 : index
      %c0 = arith.constant 0 : index
      %0 = stream.binding.subspan %arg0[%c0] : !stream.binding -> memref<i8>
      %1 = stream.binding.subspan %arg1[%c0] : !stream.binding -> memref<i8>
      %2 = stream.binding.subspan %arg2[%c0] : !stream.binding -> memref<i8>
      %3 = stream.binding.subspan %arg3[%c0] : !stream.binding -> memref<i8>
      %4 = stream.binding.subspan %arg4[%c0] : !stream.binding -> memref<f32>
      %5 = stream.binding.subspan %arg5[%c0] : !stream.binding -> memref<i32>
      %6 = stream.binding.subspan %arg6[%c0] : !stream.binding -> memref<i32>
      %7 = stream.binding.subspan %arg7[%c0] : !stream.binding -> memref<f32>
      %8 = stream.binding.subspan %arg8[%c0] : !stream.binding -> memref<f32>
      %block_id_x = gpu.block_id x upper_bound 2147483647
      %block_id_y = gpu.block_id y upper_bound 2147483647
      %thread_id_x = gpu.thread_id x upper_bound 64
      %reinterpret_cast = memref.reinterpret_cast %0 to offset: [0], sizes: [%arg9, 64, 64], strides: [4096, 64, 1] : memref<i8> to memref<?x64x64xi8, strided<[4096, 64, 1]>>
      %reinterpret_cast_6 = memref.reinterpret_cast %1 to offset: [0], sizes: [%arg9, 64, 4], strides: [256, 4, 1] : memref<i8> to memref<?x64x4xi8, strided<[256, 4, 1]>>
      %reinterpret_cast_7 = memref.reinterpret_cast %2 to offset: [0], sizes: [%arg10, 64], strides: [64, 1] : memref<i8> to memref<?x64xi8, strided<[64, 1]>>
      %reinterpret_cast_8 = memref.reinterpret_cast %3 to offset: [0], sizes: [%arg10, 4], strides: [4, 1] : memref<i8> to memref<?x4xi8, strided<[4, 1]>>
      %reinterpret_cast_9 = memref.reinterpret_cast %4 to offset: [0], sizes: [%arg9, 64], strides: [64, 1] : memref<f32> to memref<?x64xf32, strided<[64, 1]>>
      %reinterpret_cast_10 = memref.reinterpret_cast %5 to offset: [0], sizes: [%arg9], strides: [1] : memref<i32> to memref<?xi32, strided<[1]>>
      %reinterpret_cast_11 = memref.reinterpret_cast %6 to offset: [0], sizes: [%arg9], strides: [1] : memref<i32> to memref<?xi32, strided<[1]>>
      %reinterpret_cast_12 = memref.reinterpret_cast %7 to offset: [0], sizes: [%arg9, %arg10], strides: [%arg10, 1] : memref<f32> to memref<?x?xf32, strided<[?, 1]>>
      %reinterpret_cast_13 = memref.reinterpret_cast %8 to offset: [0], sizes: [%arg9, %arg10], strides: [%arg10, 1] : memref<f32> to memref<?x?xf32, strided<[?, 1]>>
      %9 = affine.apply affine_map<()[s0] -> (s0 - 1)>()[%arg9]
      %10 = affine.apply affine_map<()[s0] -> (s0 * 2)>()[%block_id_x]
      %11 = arith.minsi %9, %10 : index
      %12 = vector.load %reinterpret_cast_10[%11] : memref<?xi32, strided<[1]>>, vector<1xi32>
      %13 = arith.maxsi %12, %cst_5 : vector<1xi32>
      %14 = vector.load %reinterpret_cast_11[%11] : memref<?xi32, strided<[1]>>, vector<1xi32>
      %15 = arith.maxsi %14, %cst_5 : vector<1xi32>
      %16 = arith.index_cast %13 : vector<1xi32> to vector<1xindex>
      %17 = arith.index_cast %15 : vector<1xi32> to vector<1xindex>
      %18 = arith.cmpi sgt, %arg9, %10 : index
      %19 = arith.subi %17, %16 : vector<1xindex>
      %20 = vector.broadcast %arg12 : index to vector<1xindex>
      %21 = arith.cmpi slt, %20, %19 : vector<1xindex>
      %22 = vector.broadcast %18 : i1 to vector<1xi1>
      %23 = arith.andi %22, %21 : vector<1xi1>
      %24 = arith.select %23, %16, %cst_2 : vector<1xi1>, vector<1xindex>
      %25 = vector.extract %24[0] : index from vector<1xindex>
      %26 = arith.select %23, %17, %cst_1 : vector<1xi1>, vector<1xindex>
      %27 = vector.extract %26[0] : index from vector<1xindex>
      %28 = affine.apply affine_map<()[s0] -> (s0 * 2 + 1)>()[%block_id_x]
      %29 = arith.minsi %28, %9 : index
      %30 = vector.load %reinterpret_cast_10[%29] : memref<?xi32, strided<[1]>>, vector<1xi32>
      %31 = arith.maxsi %30, %cst_5 : vector<1xi32>
      %32 = vector.load %reinterpret_cast_11[%29] : memref<?xi32, strided<[1]>>, vector<1xi32>
      %33 = arith.maxsi %32, %cst_5 : vector<1xi32>
      %34 = arith.index_cast %31 : vector<1xi32> to vector<1xindex>
      %35 = arith.index_cast %33 : vector<1xi32> to vector<1xindex>
      %36 = arith.cmpi sgt, %arg9, %28 : index
      %37 = arith.subi %35, %34 : vector<1xindex>
      %38 = arith.cmpi slt, %20, %37 : vector<1xindex>
      %39 = vector.broadcast %36 : i1 to vector<1xi1>
      %40 = arith.andi %39, %38 : vector<1xi1>
      %41 = arith.select %40, %34, %cst_2 : vector<1xi1>, vector<1xindex>
      %42 = vector.extract %41[0] : index from vector<1xindex>
      %43 = arith.select %40, %35, %cst_1 : vector<1xi1>, vector<1xindex>
      %44 = vector.extract %43[0] : index from vector<1xindex>
      %45 = arith.minsi %42, %25 : index
      %46 = arith.minsi %45, %arg10 : index
      %47 = affine.apply affine_map<()[s0, s1, s2] -> ((s2 - s0 * s1) floordiv 64)>()[%arg13, %block_id_y, %46]
      %48 = arith.maxsi %47, %c0 : index
      %49 = arith.maxsi %44, %27 : index
      %50 = affine.apply affine_map<()[s0] -> ((s0 floordiv 64) * 64)>()[%arg10]
      %51 = affine.apply affine_map<()[s0, s1] -> (s0 + s0 * s1)>()[%arg13, %block_id_y]
      %52 = arith.minsi %50, %51 : index
      %53 = arith.minsi %52, %49 : index
      %54 = arith.minsi %53, %arg10 : index
      %55 = affine.apply affine_map<()[s0, s1, s2] -> ((s2 - s0 * s1) ceildiv 64)>()[%arg13, %block_id_y, %54]
      %56 = arith.subi %55, %48 : index
      %57 = arith.maxsi %56, %c0 : index
      %58 = affine.apply affine_map<()[s0, s1] -> (s0 * s1)>()[%arg13, %block_id_y]
      %59 = arith.cmpi sle, %58, %50 : index
      %60 = arith.cmpi sgt, %49, %50 : index
      %61 = arith.minsi %51, %arg10 : index
      %62 = arith.cmpi slt, %50, %61 : index
      %63 = arith.andi %60, %62 : i1
      %64 = arith.andi %63, %59 : i1
      %65 = arith.select %64, %c1, %c0 : index
      %66 = affine.apply affine_map<()[s0] -> (s0 mod 32)>()[%thread_id_x]
      %67 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 16)>()[%thread_id_x]
      %68 = vector.load %reinterpret_cast[%11, %66, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %69 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 16 + 32)>()[%thread_id_x]
      %70 = vector.load %reinterpret_cast[%11, %66, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %71 = affine.apply affine_map<()[s0] -> (s0 mod 32 + 32)>()[%thread_id_x]
      %72 = vector.load %reinterpret_cast[%11, %71, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %73 = vector.load %reinterpret_cast[%11, %71, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %74 = affine.apply affine_map<()[s0] -> ((s0 mod 64) floordiv 32)>()[%thread_id_x]
      %75 = vector.load %reinterpret_cast_6[%11, %66, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %76 = affine.apply affine_map<()[s0] -> ((s0 mod 64) floordiv 32 + 2)>()[%thread_id_x]
      %77 = vector.load %reinterpret_cast_6[%11, %66, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %78 = vector.load %reinterpret_cast_6[%11, %71, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %79 = vector.load %reinterpret_cast_6[%11, %71, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %80 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4)>()[%thread_id_x]
      %81 = vector.load %reinterpret_cast_9[%11, %80] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %82 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 8)>()[%thread_id_x]
      %83 = vector.load %reinterpret_cast_9[%11, %82] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %84 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 16)>()[%thread_id_x]
      %85 = vector.load %reinterpret_cast_9[%11, %84] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %86 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 24)>()[%thread_id_x]
      %87 = vector.load %reinterpret_cast_9[%11, %86] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %88 = vector.insert_strided_slice %81, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %89 = vector.insert_strided_slice %83, %88 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %90 = vector.insert_strided_slice %85, %89 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %91 = vector.insert_strided_slice %87, %90 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %92 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 32)>()[%thread_id_x]
      %93 = vector.load %reinterpret_cast_9[%11, %92] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %94 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 40)>()[%thread_id_x]
      %95 = vector.load %reinterpret_cast_9[%11, %94] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %96 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 48)>()[%thread_id_x]
      %97 = vector.load %reinterpret_cast_9[%11, %96] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %98 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 56)>()[%thread_id_x]
      %99 = vector.load %reinterpret_cast_9[%11, %98] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %100 = vector.insert_strided_slice %93, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %101 = vector.insert_strided_slice %95, %100 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %102 = vector.insert_strided_slice %97, %101 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %103 = vector.insert_strided_slice %99, %102 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %104 = vector.load %reinterpret_cast[%29, %66, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %105 = vector.load %reinterpret_cast[%29, %66, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %106 = vector.load %reinterpret_cast[%29, %71, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %107 = vector.load %reinterpret_cast[%29, %71, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %108 = vector.load %reinterpret_cast_6[%29, %66, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %109 = vector.load %reinterpret_cast_6[%29, %66, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %110 = vector.load %reinterpret_cast_6[%29, %71, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %111 = vector.load %reinterpret_cast_6[%29, %71, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %112 = vector.load %reinterpret_cast_9[%29, %80] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %113 = vector.load %reinterpret_cast_9[%29, %82] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %114 = vector.load %reinterpret_cast_9[%29, %84] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %115 = vector.load %reinterpret_cast_9[%29, %86] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %116 = vector.insert_strided_slice %112, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %117 = vector.insert_strided_slice %113, %116 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %118 = vector.insert_strided_slice %114, %117 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %119 = vector.insert_strided_slice %115, %118 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %120 = vector.load %reinterpret_cast_9[%29, %92] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %121 = vector.load %reinterpret_cast_9[%29, %94] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %122 = vector.load %reinterpret_cast_9[%29, %96] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %123 = vector.load %reinterpret_cast_9[%29, %98] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %124 = vector.insert_strided_slice %120, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %125 = vector.insert_strided_slice %121, %124 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %126 = vector.insert_strided_slice %122, %125 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %127 = vector.insert_strided_slice %123, %126 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %128 = vector.bitcast %68 : vector<16xi8> to vector<32xf4E2M1FN>
      %129 = vector.bitcast %70 : vector<16xi8> to vector<32xf4E2M1FN>
      %130 = vector.bitcast %72 : vector<16xi8> to vector<32xf4E2M1FN>
      %131 = vector.bitcast %73 : vector<16xi8> to vector<32xf4E2M1FN>
      %132 = vector.bitcast %75 : vector<1xi8> to vector<1xf8E8M0FNU>
      %133 = vector.bitcast %77 : vector<1xi8> to vector<1xf8E8M0FNU>
      %134 = vector.bitcast %78 : vector<1xi8> to vector<1xf8E8M0FNU>
      %135 = vector.bitcast %79 : vector<1xi8> to vector<1xf8E8M0FNU>
      %136 = vector.extract %132[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %137 = vector.extract %133[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %138 = vector.extract %134[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %139 = vector.extract %135[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %140 = vector.bitcast %104 : vector<16xi8> to vector<32xf4E2M1FN>
      %141 = vector.bitcast %105 : vector<16xi8> to vector<32xf4E2M1FN>
      %142 = vector.bitcast %106 : vector<16xi8> to vector<32xf4E2M1FN>
      %143 = vector.bitcast %107 : vector<16xi8> to vector<32xf4E2M1FN>
      %144 = vector.bitcast %108 : vector<1xi8> to vector<1xf8E8M0FNU>
      %145 = vector.bitcast %109 : vector<1xi8> to vector<1xf8E8M0FNU>
      %146 = vector.bitcast %110 : vector<1xi8> to vector<1xf8E8M0FNU>
      %147 = vector.bitcast %111 : vector<1xi8> to vector<1xf8E8M0FNU>
      %148 = vector.extract %144[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %149 = vector.extract %145[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %150 = vector.extract %146[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %151 = vector.extract %147[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %152 = arith.cmpi slt, %thread_id_x, %c32 : index
      %153 = arith.maxsi %42, %25 : index
      %154 = arith.minsi %44, %27 : index
      %155 = arith.cmpi sgt, %arg11, %c0 : index
      %156 = arith.cmpi slt, %10, %arg9 : index
      %157 = arith.cmpi sle, %arg11, %c0 : index
      %158 = arith.cmpi slt, %28, %arg9 : index
      scf.for %arg14 = %c0 to %57 step %c1 {
        %251 = affine.apply affine_map<()[s0, s1, s2, s3, s4] -> (s0 mod 32 + s1 * s2 + s3 * 64 + s4 * 64)>()[%thread_id_x, %arg13, %block_id_y, %48, %arg14]
        %252 = vector.load %reinterpret_cast_7[%251, %67] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %253 = vector.load %reinterpret_cast_7[%251, %69] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %254 = affine.apply affine_map<()[s0, s1, s2, s3, s4] -> (s0 mod 32 + s1 * s2 + s3 * 64 + s4 * 64 + 32)>()[%thread_id_x, %arg13, %block_id_y, %48, %arg14]
        %255 = vector.load %reinterpret_cast_7[%254, %67] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %256 = vector.load %reinterpret_cast_7[%254, %69] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %257 = vector.bitcast %252 : vector<16xi8> to vector<32xf4E2M1FN>
        %258 = vector.bitcast %253 : vector<16xi8> to vector<32xf4E2M1FN>
        %259 = vector.bitcast %255 : vector<16xi8> to vector<32xf4E2M1FN>
        %260 = vector.bitcast %256 : vector<16xi8> to vector<32xf4E2M1FN>
        %261 = vector.load %reinterpret_cast_8[%251, %74] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %262 = vector.load %reinterpret_cast_8[%251, %76] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %263 = vector.load %reinterpret_cast_8[%254, %74] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %264 = vector.load %reinterpret_cast_8[%254, %76] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %265 = vector.bitcast %261 : vector<1xi8> to vector<1xf8E8M0FNU>
        %266 = vector.bitcast %262 : vector<1xi8> to vector<1xf8E8M0FNU>
        %267 = vector.bitcast %263 : vector<1xi8> to vector<1xf8E8M0FNU>
        %268 = vector.bitcast %264 : vector<1xi8> to vector<1xf8E8M0FNU>
        %269 = vector.extract %265[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %270 = amdgpu.scaled_mfma 32x32x64 (%136[0] * %128) * (%269[0] * %257) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %271 = vector.extract %266[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %272 = amdgpu.scaled_mfma 32x32x64 (%137[0] * %129) * (%271[0] * %258) + %270 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %273 = amdgpu.scaled_mfma 32x32x64 (%138[0] * %130) * (%269[0] * %257) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %274 = amdgpu.scaled_mfma 32x32x64 (%139[0] * %131) * (%271[0] * %258) + %273 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %275 = vector.extract %267[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %276 = amdgpu.scaled_mfma 32x32x64 (%136[0] * %128) * (%275[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %277 = vector.extract %268[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %278 = amdgpu.scaled_mfma 32x32x64 (%137[0] * %129) * (%277[0] * %260) + %276 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %279 = amdgpu.scaled_mfma 32x32x64 (%138[0] * %130) * (%275[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %280 = amdgpu.scaled_mfma 32x32x64 (%139[0] * %131) * (%277[0] * %260) + %279 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %281 = llvm.intr.maximum(%272, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %282 = llvm.intr.maximum(%274, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %283 = llvm.intr.maximum(%278, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %284 = llvm.intr.maximum(%280, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %285 = arith.mulf %281, %91 fastmath<contract> : vector<16xf32>
        %286 = arith.mulf %282, %103 fastmath<contract> : vector<16xf32>
        %287 = arith.mulf %283, %91 fastmath<contract> : vector<16xf32>
        %288 = arith.mulf %284, %103 fastmath<contract> : vector<16xf32>
        %289 = arith.addf %285, %286 fastmath<contract> : vector<16xf32>
        %290 = vector.extract_strided_slice %289 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %291 = vector.extract_strided_slice %289 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %292 = arith.addf %290, %291 : vector<8xf32>
        %293 = vector.extract_strided_slice %292 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %294 = vector.extract_strided_slice %292 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %295 = arith.addf %293, %294 : vector<4xf32>
        %296 = vector.extract_strided_slice %295 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %297 = vector.extract_strided_slice %295 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %298 = arith.addf %296, %297 : vector<2xf32>
        %299 = vector.extract %298[0] : f32 from vector<2xf32>
        %300 = vector.extract %298[1] : f32 from vector<2xf32>
        %301 = arith.addf %299, %300 : f32
        %302 = arith.bitcast %301 : f32 to i32
        %303 = rocdl.permlane32.swap %302, %302, false, false : (i32, i32) -> <(i32, i32)>
        %304 = llvm.extractvalue %303[0] : !llvm.struct<(i32, i32)>
        %305 = arith.bitcast %304 : i32 to f32
        %306 = llvm.extractvalue %303[1] : !llvm.struct<(i32, i32)>
        %307 = arith.bitcast %306 : i32 to f32
        %308 = arith.addf %305, %307 : f32
        %309 = vector.broadcast %308 : f32 to vector<1xf32>
        %310 = arith.addf %287, %288 fastmath<contract> : vector<16xf32>
        %311 = vector.extract_strided_slice %310 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %312 = vector.extract_strided_slice %310 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %313 = arith.addf %311, %312 : vector<8xf32>
        %314 = vector.extract_strided_slice %313 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %315 = vector.extract_strided_slice %313 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %316 = arith.addf %314, %315 : vector<4xf32>
        %317 = vector.extract_strided_slice %316 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %318 = vector.extract_strided_slice %316 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %319 = arith.addf %317, %318 : vector<2xf32>
        %320 = vector.extract %319[0] : f32 from vector<2xf32>
        %321 = vector.extract %319[1] : f32 from vector<2xf32>
        %322 = arith.addf %320, %321 : f32
        %323 = arith.bitcast %322 : f32 to i32
        %324 = rocdl.permlane32.swap %323, %323, false, false : (i32, i32) -> <(i32, i32)>
        %325 = llvm.extractvalue %324[0] : !llvm.struct<(i32, i32)>
        %326 = arith.bitcast %325 : i32 to f32
        %327 = llvm.extractvalue %324[1] : !llvm.struct<(i32, i32)>
        %328 = arith.bitcast %327 : i32 to f32
        %329 = arith.addf %326, %328 : f32
        %330 = vector.broadcast %329 : f32 to vector<1xf32>
        %331 = amdgpu.scaled_mfma 32x32x64 (%148[0] * %140) * (%269[0] * %257) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %332 = amdgpu.scaled_mfma 32x32x64 (%149[0] * %141) * (%271[0] * %258) + %331 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %333 = amdgpu.scaled_mfma 32x32x64 (%150[0] * %142) * (%269[0] * %257) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %334 = amdgpu.scaled_mfma 32x32x64 (%151[0] * %143) * (%271[0] * %258) + %333 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %335 = amdgpu.scaled_mfma 32x32x64 (%148[0] * %140) * (%275[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %336 = amdgpu.scaled_mfma 32x32x64 (%149[0] * %141) * (%277[0] * %260) + %335 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %337 = amdgpu.scaled_mfma 32x32x64 (%150[0] * %142) * (%275[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %338 = amdgpu.scaled_mfma 32x32x64 (%151[0] * %143) * (%277[0] * %260) + %337 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %339 = llvm.intr.maximum(%332, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %340 = llvm.intr.maximum(%334, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %341 = llvm.intr.maximum(%336, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %342 = llvm.intr.maximum(%338, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %343 = arith.mulf %339, %119 fastmath<contract> : vector<16xf32>
        %344 = arith.mulf %340, %127 fastmath<contract> : vector<16xf32>
        %345 = arith.mulf %341, %119 fastmath<contract> : vector<16xf32>
        %346 = arith.mulf %342, %127 fastmath<contract> : vector<16xf32>
        %347 = arith.addf %343, %344 fastmath<contract> : vector<16xf32>
        %348 = vector.extract_strided_slice %347 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %349 = vector.extract_strided_slice %347 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %350 = arith.addf %348, %349 : vector<8xf32>
        %351 = vector.extract_strided_slice %350 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %352 = vector.extract_strided_slice %350 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %353 = arith.addf %351, %352 : vector<4xf32>
        %354 = vector.extract_strided_slice %353 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %355 = vector.extract_strided_slice %353 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %356 = arith.addf %354, %355 : vector<2xf32>
        %357 = vector.extract %356[0] : f32 from vector<2xf32>
        %358 = vector.extract %356[1] : f32 from vector<2xf32>
        %359 = arith.addf %357, %358 : f32
        %360 = arith.bitcast %359 : f32 to i32
        %361 = rocdl.permlane32.swap %360, %360, false, false : (i32, i32) -> <(i32, i32)>
        %362 = llvm.extractvalue %361[0] : !llvm.struct<(i32, i32)>
        %363 = arith.bitcast %362 : i32 to f32
        %364 = llvm.extractvalue %361[1] : !llvm.struct<(i32, i32)>
        %365 = arith.bitcast %364 : i32 to f32
        %366 = arith.addf %363, %365 : f32
        %367 = vector.broadcast %366 : f32 to vector<1xf32>
        %368 = arith.addf %345, %346 fastmath<contract> : vector<16xf32>
        %369 = vector.extract_strided_slice %368 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %370 = vector.extract_strided_slice %368 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %371 = arith.addf %369, %370 : vector<8xf32>
        %372 = vector.extract_strided_slice %371 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %373 = vector.extract_strided_slice %371 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %374 = arith.addf %372, %373 : vector<4xf32>
        %375 = vector.extract_strided_slice %374 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %376 = vector.extract_strided_slice %374 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %377 = arith.addf %375, %376 : vector<2xf32>
        %378 = vector.extract %377[0] : f32 from vector<2xf32>
        %379 = vector.extract %377[1] : f32 from vector<2xf32>
        %380 = arith.addf %378, %379 : f32
        %381 = arith.bitcast %380 : f32 to i32
        %382 = rocdl.permlane32.swap %381, %381, false, false : (i32, i32) -> <(i32, i32)>
        %383 = llvm.extractvalue %382[0] : !llvm.struct<(i32, i32)>
        %384 = arith.bitcast %383 : i32 to f32
        %385 = llvm.extractvalue %382[1] : !llvm.struct<(i32, i32)>
        %386 = arith.bitcast %385 : i32 to f32
        %387 = arith.addf %384, %386 : f32
        %388 = vector.broadcast %387 : f32 to vector<1xf32>
        %389 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3 * 64)>()[%arg13, %block_id_y, %48, %arg14]
        %390 = arith.cmpi sge, %389, %153 : index
        %391 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3 * 64 + 64)>()[%arg13, %block_id_y, %48, %arg14]
        %392 = arith.cmpi sle, %391, %154 : index
        %393 = arith.andi %390, %392 : i1
        %394 = arith.andi %393, %152 : i1
        scf.if %394 {
          vector.store %309, %reinterpret_cast_13[%10, %251] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          vector.store %330, %reinterpret_cast_13[%10, %254] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          vector.store %367, %reinterpret_cast_13[%28, %251] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          vector.store %388, %reinterpret_cast_13[%28, %254] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
        }
        %395 = arith.cmpi slt, %389, %153 : index
        %396 = arith.cmpi sgt, %391, %154 : index
        %397 = arith.ori %395, %396 : i1
        %398 = arith.andi %156, %397 : i1
        %399 = arith.andi %398, %152 : i1
        %400 = arith.andi %399, %155 : i1
        scf.if %400 {
          %406 = arith.index_cast %251 : index to i32
          %407 = arith.index_cast %254 : index to i32
          %408 = arith.index_cast %406 : i32 to index
          %409 = arith.cmpi sge, %408, %25 : index
          %410 = arith.cmpi slt, %408, %27 : index
          %411 = arith.andi %409, %410 : i1
          %412 = arith.index_cast %407 : i32 to index
          %413 = arith.cmpi sge, %412, %25 : index
          %414 = arith.cmpi slt, %412, %27 : index
          %415 = arith.andi %413, %414 : i1
          %416 = arith.select %411, %308, %cst_0 : f32
          %417 = arith.select %415, %329, %cst_0 : f32
          memref.store %416, %reinterpret_cast_13[%10, %251] : memref<?x?xf32, strided<[?, 1]>>
          memref.store %417, %reinterpret_cast_13[%10, %254] : memref<?x?xf32, strided<[?, 1]>>
        }
        %401 = arith.andi %399, %157 : i1
        scf.if %401 {
          %406 = vector.load %reinterpret_cast_12[%10, %251] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          %407 = vector.load %reinterpret_cast_12[%10, %254] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          %408 = arith.index_cast %251 : index to i32
          %409 = arith.index_cast %254 : index to i32
          %410 = arith.index_cast %408 : i32 to index
          %411 = arith.cmpi sge, %410, %25 : index
          %412 = arith.cmpi slt, %410, %27 : index
          %413 = arith.andi %411, %412 : i1
          %414 = vector.broadcast %413 : i1 to vector<1xi1>
          %415 = arith.index_cast %409 : i32 to index
          %416 = arith.cmpi sge, %415, %25 : index
          %417 = arith.cmpi slt, %415, %27 : index
          %418 = arith.andi %416, %417 : i1
          %419 = vector.broadcast %418 : i1 to vector<1xi1>
          %420 = arith.select %414, %309, %406 : vector<1xi1>, vector<1xf32>
          %421 = arith.select %419, %330, %407 : vector<1xi1>, vector<1xf32>
          vector.store %420, %reinterpret_cast_13[%10, %251] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          vector.store %421, %reinterpret_cast_13[%10, %254] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
        }
        %402 = arith.andi %158, %397 : i1
        %403 = arith.andi %402, %152 : i1
        %404 = arith.andi %403, %155 : i1
        scf.if %404 {
          %406 = arith.index_cast %251 : index to i32
          %407 = arith.index_cast %254 : index to i32
          %408 = arith.index_cast %406 : i32 to index
          %409 = arith.cmpi sge, %408, %42 : index
          %410 = arith.cmpi slt, %408, %44 : index
          %411 = arith.andi %409, %410 : i1
          %412 = arith.index_cast %407 : i32 to index
          %413 = arith.cmpi sge, %412, %42 : index
          %414 = arith.cmpi slt, %412, %44 : index
          %415 = arith.andi %413, %414 : i1
          %416 = arith.select %411, %366, %cst_0 : f32
          %417 = arith.select %415, %387, %cst_0 : f32
          memref.store %416, %reinterpret_cast_13[%28, %251] : memref<?x?xf32, strided<[?, 1]>>
          memref.store %417, %reinterpret_cast_13[%28, %254] : memref<?x?xf32, strided<[?, 1]>>
        }
        %405 = arith.andi %403, %157 : i1
        scf.if %405 {
          %406 = vector.load %reinterpret_cast_12[%28, %251] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          %407 = vector.load %reinterpret_cast_12[%28, %254] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          %408 = arith.index_cast %251 : index to i32
          %409 = arith.index_cast %254 : index to i32
          %410 = arith.index_cast %408 : i32 to index
          %411 = arith.cmpi sge, %410, %42 : index
          %412 = arith.cmpi slt, %410, %44 : index
          %413 = arith.andi %411, %412 : i1
          %414 = vector.broadcast %413 : i1 to vector<1xi1>
          %415 = arith.index_cast %409 : i32 to index
          %416 = arith.cmpi sge, %415, %42 : index
          %417 = arith.cmpi slt, %415, %44 : index
          %418 = arith.andi %416, %417 : i1
          %419 = vector.broadcast %418 : i1 to vector<1xi1>
          %420 = arith.select %414, %367, %406 : vector<1xi1>, vector<1xf32>
          %421 = arith.select %419, %388, %407 : vector<1xi1>, vector<1xf32>
          vector.store %420, %reinterpret_cast_13[%28, %251] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          vector.store %421, %reinterpret_cast_13[%28, %254] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
        }
      }
      %159 = vector.load %reinterpret_cast[%11, %66, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %160 = vector.load %reinterpret_cast[%11, %66, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %161 = vector.load %reinterpret_cast[%11, %71, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %162 = vector.load %reinterpret_cast[%11, %71, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %163 = vector.load %reinterpret_cast_6[%11, %66, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %164 = vector.load %reinterpret_cast_6[%11, %66, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %165 = vector.load %reinterpret_cast_6[%11, %71, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %166 = vector.load %reinterpret_cast_6[%11, %71, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %167 = vector.load %reinterpret_cast_9[%11, %80] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %168 = vector.load %reinterpret_cast_9[%11, %82] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %169 = vector.load %reinterpret_cast_9[%11, %84] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %170 = vector.load %reinterpret_cast_9[%11, %86] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %171 = vector.insert_strided_slice %167, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %172 = vector.insert_strided_slice %168, %171 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %173 = vector.insert_strided_slice %169, %172 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %174 = vector.insert_strided_slice %170, %173 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %175 = vector.load %reinterpret_cast_9[%11, %92] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %176 = vector.load %reinterpret_cast_9[%11, %94] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %177 = vector.load %reinterpret_cast_9[%11, %96] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %178 = vector.load %reinterpret_cast_9[%11, %98] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %179 = vector.insert_strided_slice %175, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %180 = vector.insert_strided_slice %176, %179 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %181 = vector.insert_strided_slice %177, %180 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %182 = vector.insert_strided_slice %178, %181 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %183 = vector.load %reinterpret_cast[%29, %66, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %184 = vector.load %reinterpret_cast[%29, %66, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %185 = vector.load %reinterpret_cast[%29, %71, %67] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %186 = vector.load %reinterpret_cast[%29, %71, %69] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
      %187 = vector.load %reinterpret_cast_6[%29, %66, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %188 = vector.load %reinterpret_cast_6[%29, %66, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %189 = vector.load %reinterpret_cast_6[%29, %71, %74] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %190 = vector.load %reinterpret_cast_6[%29, %71, %76] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
      %191 = vector.load %reinterpret_cast_9[%29, %80] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %192 = vector.load %reinterpret_cast_9[%29, %82] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %193 = vector.load %reinterpret_cast_9[%29, %84] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %194 = vector.load %reinterpret_cast_9[%29, %86] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %195 = vector.insert_strided_slice %191, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %196 = vector.insert_strided_slice %192, %195 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %197 = vector.insert_strided_slice %193, %196 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %198 = vector.insert_strided_slice %194, %197 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %199 = vector.load %reinterpret_cast_9[%29, %92] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %200 = vector.load %reinterpret_cast_9[%29, %94] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %201 = vector.load %reinterpret_cast_9[%29, %96] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %202 = vector.load %reinterpret_cast_9[%29, %98] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
      %203 = vector.insert_strided_slice %199, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
      %204 = vector.insert_strided_slice %200, %203 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
      %205 = vector.insert_strided_slice %201, %204 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
      %206 = vector.insert_strided_slice %202, %205 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
      %207 = affine.apply affine_map<()[s0] -> (s0 - 1)>()[%arg10]
      %208 = vector.bitcast %159 : vector<16xi8> to vector<32xf4E2M1FN>
      %209 = vector.bitcast %160 : vector<16xi8> to vector<32xf4E2M1FN>
      %210 = vector.bitcast %161 : vector<16xi8> to vector<32xf4E2M1FN>
      %211 = vector.bitcast %162 : vector<16xi8> to vector<32xf4E2M1FN>
      %212 = vector.bitcast %163 : vector<1xi8> to vector<1xf8E8M0FNU>
      %213 = vector.bitcast %164 : vector<1xi8> to vector<1xf8E8M0FNU>
      %214 = vector.bitcast %165 : vector<1xi8> to vector<1xf8E8M0FNU>
      %215 = vector.bitcast %166 : vector<1xi8> to vector<1xf8E8M0FNU>
      %216 = vector.extract %212[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %217 = vector.extract %213[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %218 = vector.extract %214[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %219 = vector.extract %215[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %220 = vector.bitcast %183 : vector<16xi8> to vector<32xf4E2M1FN>
      %221 = vector.bitcast %184 : vector<16xi8> to vector<32xf4E2M1FN>
      %222 = vector.bitcast %185 : vector<16xi8> to vector<32xf4E2M1FN>
      %223 = vector.bitcast %186 : vector<16xi8> to vector<32xf4E2M1FN>
      %224 = vector.bitcast %187 : vector<1xi8> to vector<1xf8E8M0FNU>
      %225 = vector.bitcast %188 : vector<1xi8> to vector<1xf8E8M0FNU>
      %226 = vector.bitcast %189 : vector<1xi8> to vector<1xf8E8M0FNU>
      %227 = vector.bitcast %190 : vector<1xi8> to vector<1xf8E8M0FNU>
      %228 = vector.extract %224[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %229 = vector.extract %225[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %230 = vector.extract %226[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %231 = vector.extract %227[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
      %232 = arith.cmpi sgt, %arg11, %c0 : index
      %233 = arith.cmpi slt, %thread_id_x, %c32 : index
      %234 = arith.cmpi slt, %10, %arg9 : index
      %235 = arith.andi %233, %234 : i1
      %236 = arith.andi %235, %232 : i1
      %237 = arith.cmpi sle, %arg11, %c0 : index
      %238 = arith.andi %235, %237 : i1
      %239 = arith.cmpi slt, %28, %arg9 : index
      %240 = arith.andi %233, %239 : i1
      %241 = arith.andi %240, %232 : i1
      %242 = arith.andi %240, %237 : i1
      scf.for %arg14 = %c0 to %65 step %c1 {
        %251 = affine.apply affine_map<()[s0, s1, s2] -> (s0 + s2 * 64 - (s0 floordiv 32) * 32 + (s1 floordiv 64) * 64)>()[%thread_id_x, %arg10, %arg14]
        %252 = arith.minsi %251, %207 : index
        %253 = vector.load %reinterpret_cast_7[%252, %67] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %254 = vector.load %reinterpret_cast_7[%252, %69] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %255 = affine.apply affine_map<()[s0, s1, s2] -> (s0 + s2 * 64 - (s0 floordiv 32) * 32 + (s1 floordiv 64) * 64 + 32)>()[%thread_id_x, %arg10, %arg14]
        %256 = arith.minsi %255, %207 : index
        %257 = vector.load %reinterpret_cast_7[%256, %67] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %258 = vector.load %reinterpret_cast_7[%256, %69] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
        %259 = vector.bitcast %253 : vector<16xi8> to vector<32xf4E2M1FN>
        %260 = vector.bitcast %254 : vector<16xi8> to vector<32xf4E2M1FN>
        %261 = vector.bitcast %257 : vector<16xi8> to vector<32xf4E2M1FN>
        %262 = vector.bitcast %258 : vector<16xi8> to vector<32xf4E2M1FN>
        %263 = vector.load %reinterpret_cast_8[%252, %74] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %264 = vector.load %reinterpret_cast_8[%252, %76] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %265 = vector.load %reinterpret_cast_8[%256, %74] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %266 = vector.load %reinterpret_cast_8[%256, %76] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
        %267 = vector.bitcast %263 : vector<1xi8> to vector<1xf8E8M0FNU>
        %268 = vector.bitcast %264 : vector<1xi8> to vector<1xf8E8M0FNU>
        %269 = vector.bitcast %265 : vector<1xi8> to vector<1xf8E8M0FNU>
        %270 = vector.bitcast %266 : vector<1xi8> to vector<1xf8E8M0FNU>
        %271 = vector.extract %267[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %272 = amdgpu.scaled_mfma 32x32x64 (%216[0] * %208) * (%271[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %273 = vector.extract %268[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %274 = amdgpu.scaled_mfma 32x32x64 (%217[0] * %209) * (%273[0] * %260) + %272 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %275 = amdgpu.scaled_mfma 32x32x64 (%218[0] * %210) * (%271[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %276 = amdgpu.scaled_mfma 32x32x64 (%219[0] * %211) * (%273[0] * %260) + %275 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %277 = vector.extract %269[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %278 = amdgpu.scaled_mfma 32x32x64 (%216[0] * %208) * (%277[0] * %261) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %279 = vector.extract %270[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
        %280 = amdgpu.scaled_mfma 32x32x64 (%217[0] * %209) * (%279[0] * %262) + %278 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %281 = amdgpu.scaled_mfma 32x32x64 (%218[0] * %210) * (%277[0] * %261) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %282 = amdgpu.scaled_mfma 32x32x64 (%219[0] * %211) * (%279[0] * %262) + %281 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %283 = llvm.intr.maximum(%274, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %284 = llvm.intr.maximum(%276, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %285 = llvm.intr.maximum(%280, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %286 = llvm.intr.maximum(%282, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %287 = arith.mulf %283, %174 fastmath<contract> : vector<16xf32>
        %288 = arith.mulf %284, %182 fastmath<contract> : vector<16xf32>
        %289 = arith.mulf %285, %174 fastmath<contract> : vector<16xf32>
        %290 = arith.mulf %286, %182 fastmath<contract> : vector<16xf32>
        %291 = arith.addf %287, %288 fastmath<contract> : vector<16xf32>
        %292 = vector.extract_strided_slice %291 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %293 = vector.extract_strided_slice %291 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %294 = arith.addf %292, %293 : vector<8xf32>
        %295 = vector.extract_strided_slice %294 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %296 = vector.extract_strided_slice %294 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %297 = arith.addf %295, %296 : vector<4xf32>
        %298 = vector.extract_strided_slice %297 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %299 = vector.extract_strided_slice %297 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %300 = arith.addf %298, %299 : vector<2xf32>
        %301 = vector.extract %300[0] : f32 from vector<2xf32>
        %302 = vector.extract %300[1] : f32 from vector<2xf32>
        %303 = arith.addf %301, %302 : f32
        %304 = arith.bitcast %303 : f32 to i32
        %305 = rocdl.permlane32.swap %304, %304, false, false : (i32, i32) -> <(i32, i32)>
        %306 = llvm.extractvalue %305[0] : !llvm.struct<(i32, i32)>
        %307 = arith.bitcast %306 : i32 to f32
        %308 = llvm.extractvalue %305[1] : !llvm.struct<(i32, i32)>
        %309 = arith.bitcast %308 : i32 to f32
        %310 = arith.addf %307, %309 : f32
        %311 = vector.broadcast %310 : f32 to vector<1xf32>
        %312 = arith.addf %289, %290 fastmath<contract> : vector<16xf32>
        %313 = vector.extract_strided_slice %312 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %314 = vector.extract_strided_slice %312 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %315 = arith.addf %313, %314 : vector<8xf32>
        %316 = vector.extract_strided_slice %315 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %317 = vector.extract_strided_slice %315 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %318 = arith.addf %316, %317 : vector<4xf32>
        %319 = vector.extract_strided_slice %318 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %320 = vector.extract_strided_slice %318 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %321 = arith.addf %319, %320 : vector<2xf32>
        %322 = vector.extract %321[0] : f32 from vector<2xf32>
        %323 = vector.extract %321[1] : f32 from vector<2xf32>
        %324 = arith.addf %322, %323 : f32
        %325 = arith.bitcast %324 : f32 to i32
        %326 = rocdl.permlane32.swap %325, %325, false, false : (i32, i32) -> <(i32, i32)>
        %327 = llvm.extractvalue %326[0] : !llvm.struct<(i32, i32)>
        %328 = arith.bitcast %327 : i32 to f32
        %329 = llvm.extractvalue %326[1] : !llvm.struct<(i32, i32)>
        %330 = arith.bitcast %329 : i32 to f32
        %331 = arith.addf %328, %330 : f32
        %332 = vector.broadcast %331 : f32 to vector<1xf32>
        %333 = amdgpu.scaled_mfma 32x32x64 (%228[0] * %220) * (%271[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %334 = amdgpu.scaled_mfma 32x32x64 (%229[0] * %221) * (%273[0] * %260) + %333 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %335 = amdgpu.scaled_mfma 32x32x64 (%230[0] * %222) * (%271[0] * %259) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %336 = amdgpu.scaled_mfma 32x32x64 (%231[0] * %223) * (%273[0] * %260) + %335 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %337 = amdgpu.scaled_mfma 32x32x64 (%228[0] * %220) * (%277[0] * %261) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %338 = amdgpu.scaled_mfma 32x32x64 (%229[0] * %221) * (%279[0] * %262) + %337 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %339 = amdgpu.scaled_mfma 32x32x64 (%230[0] * %222) * (%277[0] * %261) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %340 = amdgpu.scaled_mfma 32x32x64 (%231[0] * %223) * (%279[0] * %262) + %339 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
        %341 = llvm.intr.maximum(%334, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %342 = llvm.intr.maximum(%336, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %343 = llvm.intr.maximum(%338, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %344 = llvm.intr.maximum(%340, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
        %345 = arith.mulf %341, %198 fastmath<contract> : vector<16xf32>
        %346 = arith.mulf %342, %206 fastmath<contract> : vector<16xf32>
        %347 = arith.mulf %343, %198 fastmath<contract> : vector<16xf32>
        %348 = arith.mulf %344, %206 fastmath<contract> : vector<16xf32>
        %349 = arith.addf %345, %346 fastmath<contract> : vector<16xf32>
        %350 = vector.extract_strided_slice %349 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %351 = vector.extract_strided_slice %349 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %352 = arith.addf %350, %351 : vector<8xf32>
        %353 = vector.extract_strided_slice %352 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %354 = vector.extract_strided_slice %352 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %355 = arith.addf %353, %354 : vector<4xf32>
        %356 = vector.extract_strided_slice %355 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %357 = vector.extract_strided_slice %355 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %358 = arith.addf %356, %357 : vector<2xf32>
        %359 = vector.extract %358[0] : f32 from vector<2xf32>
        %360 = vector.extract %358[1] : f32 from vector<2xf32>
        %361 = arith.addf %359, %360 : f32
        %362 = arith.bitcast %361 : f32 to i32
        %363 = rocdl.permlane32.swap %362, %362, false, false : (i32, i32) -> <(i32, i32)>
        %364 = llvm.extractvalue %363[0] : !llvm.struct<(i32, i32)>
        %365 = arith.bitcast %364 : i32 to f32
        %366 = llvm.extractvalue %363[1] : !llvm.struct<(i32, i32)>
        %367 = arith.bitcast %366 : i32 to f32
        %368 = arith.addf %365, %367 : f32
        %369 = vector.broadcast %368 : f32 to vector<1xf32>
        %370 = arith.addf %347, %348 fastmath<contract> : vector<16xf32>
        %371 = vector.extract_strided_slice %370 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %372 = vector.extract_strided_slice %370 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
        %373 = arith.addf %371, %372 : vector<8xf32>
        %374 = vector.extract_strided_slice %373 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %375 = vector.extract_strided_slice %373 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
        %376 = arith.addf %374, %375 : vector<4xf32>
        %377 = vector.extract_strided_slice %376 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %378 = vector.extract_strided_slice %376 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
        %379 = arith.addf %377, %378 : vector<2xf32>
        %380 = vector.extract %379[0] : f32 from vector<2xf32>
        %381 = vector.extract %379[1] : f32 from vector<2xf32>
        %382 = arith.addf %380, %381 : f32
        %383 = arith.bitcast %382 : f32 to i32
        %384 = rocdl.permlane32.swap %383, %383, false, false : (i32, i32) -> <(i32, i32)>
        %385 = llvm.extractvalue %384[0] : !llvm.struct<(i32, i32)>
        %386 = arith.bitcast %385 : i32 to f32
        %387 = llvm.extractvalue %384[1] : !llvm.struct<(i32, i32)>
        %388 = arith.bitcast %387 : i32 to f32
        %389 = arith.addf %386, %388 : f32
        %390 = vector.broadcast %389 : f32 to vector<1xf32>
        scf.if %236 {
          %391 = arith.index_cast %251 : index to i32
          %392 = arith.index_cast %255 : index to i32
          %393 = arith.index_cast %391 : i32 to index
          %394 = arith.cmpi sge, %393, %25 : index
          %395 = arith.cmpi slt, %393, %27 : index
          %396 = arith.andi %394, %395 : i1
          %397 = arith.index_cast %392 : i32 to index
          %398 = arith.cmpi sge, %397, %25 : index
          %399 = arith.cmpi slt, %397, %27 : index
          %400 = arith.andi %398, %399 : i1
          %401 = arith.select %396, %310, %cst_0 : f32
          %402 = vector.broadcast %401 : f32 to vector<1xf32>
          %403 = arith.select %400, %331, %cst_0 : f32
          %404 = vector.broadcast %403 : f32 to vector<1xf32>
          %405 = arith.cmpi slt, %251, %arg10 : index
          %406 = vector.broadcast %405 : i1 to vector<1xi1>
          vector.maskedstore %reinterpret_cast_13[%10, %251], %406, %402 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          %407 = arith.cmpi slt, %255, %arg10 : index
          %408 = vector.broadcast %407 : i1 to vector<1xi1>
          vector.maskedstore %reinterpret_cast_13[%10, %255], %408, %404 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
        scf.if %238 {
          %391 = arith.cmpi slt, %251, %arg10 : index
          %392 = vector.broadcast %391 : i1 to vector<1xi1>
          %393 = vector.maskedload %reinterpret_cast_12[%10, %251], %392, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
          %394 = arith.cmpi slt, %255, %arg10 : index
          %395 = vector.broadcast %394 : i1 to vector<1xi1>
          %396 = vector.maskedload %reinterpret_cast_12[%10, %255], %395, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
          %397 = arith.index_cast %251 : index to i32
          %398 = arith.index_cast %255 : index to i32
          %399 = arith.index_cast %397 : i32 to index
          %400 = arith.cmpi sge, %399, %25 : index
          %401 = arith.cmpi slt, %399, %27 : index
          %402 = arith.andi %400, %401 : i1
          %403 = vector.broadcast %402 : i1 to vector<1xi1>
          %404 = arith.index_cast %398 : i32 to index
          %405 = arith.cmpi sge, %404, %25 : index
          %406 = arith.cmpi slt, %404, %27 : index
          %407 = arith.andi %405, %406 : i1
          %408 = vector.broadcast %407 : i1 to vector<1xi1>
          %409 = arith.select %403, %311, %393 : vector<1xi1>, vector<1xf32>
          %410 = arith.select %408, %332, %396 : vector<1xi1>, vector<1xf32>
          vector.maskedstore %reinterpret_cast_13[%10, %251], %392, %409 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          vector.maskedstore %reinterpret_cast_13[%10, %255], %395, %410 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
        scf.if %241 {
          %391 = arith.index_cast %251 : index to i32
          %392 = arith.index_cast %255 : index to i32
          %393 = arith.index_cast %391 : i32 to index
          %394 = arith.cmpi sge, %393, %42 : index
          %395 = arith.cmpi slt, %393, %44 : index
          %396 = arith.andi %394, %395 : i1
          %397 = arith.index_cast %392 : i32 to index
          %398 = arith.cmpi sge, %397, %42 : index
          %399 = arith.cmpi slt, %397, %44 : index
          %400 = arith.andi %398, %399 : i1
          %401 = arith.select %396, %368, %cst_0 : f32
          %402 = vector.broadcast %401 : f32 to vector<1xf32>
          %403 = arith.select %400, %389, %cst_0 : f32
          %404 = vector.broadcast %403 : f32 to vector<1xf32>
          %405 = arith.cmpi slt, %251, %arg10 : index
          %406 = vector.broadcast %405 : i1 to vector<1xi1>
          vector.maskedstore %reinterpret_cast_13[%28, %251], %406, %402 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          %407 = arith.cmpi slt, %255, %arg10 : index
          %408 = vector.broadcast %407 : i1 to vector<1xi1>
          vector.maskedstore %reinterpret_cast_13[%28, %255], %408, %404 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
        scf.if %242 {
          %391 = arith.cmpi slt, %251, %arg10 : index
          %392 = vector.broadcast %391 : i1 to vector<1xi1>
          %393 = vector.maskedload %reinterpret_cast_12[%28, %251], %392, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
          %394 = arith.cmpi slt, %255, %arg10 : index
          %395 = vector.broadcast %394 : i1 to vector<1xi1>
          %396 = vector.maskedload %reinterpret_cast_12[%28, %255], %395, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
          %397 = arith.index_cast %251 : index to i32
          %398 = arith.index_cast %255 : index to i32
          %399 = arith.index_cast %397 : i32 to index
          %400 = arith.cmpi sge, %399, %42 : index
          %401 = arith.cmpi slt, %399, %44 : index
          %402 = arith.andi %400, %401 : i1
          %403 = vector.broadcast %402 : i1 to vector<1xi1>
          %404 = arith.index_cast %398 : i32 to index
          %405 = arith.cmpi sge, %404, %42 : index
          %406 = arith.cmpi slt, %404, %44 : index
          %407 = arith.andi %405, %406 : i1
          %408 = vector.broadcast %407 : i1 to vector<1xi1>
          %409 = arith.select %403, %369, %393 : vector<1xi1>, vector<1xf32>
          %410 = arith.select %408, %390, %396 : vector<1xi1>, vector<1xf32>
          vector.maskedstore %reinterpret_cast_13[%28, %251], %392, %409 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          vector.maskedstore %reinterpret_cast_13[%28, %255], %395, %410 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
      }
      %243 = affine.apply affine_map<()[s0, s1, s2] -> ((s2 - s0 * s1) ceildiv 64)>()[%arg13, %block_id_y, %61]
      %244 = arith.cmpi sgt, %arg11, %c0 : index
      %245 = arith.cmpi slt, %10, %arg9 : index
      %246 = arith.cmpi slt, %65, %c1 : index
      %247 = affine.apply affine_map<()[s0, s1, s2] -> (s0 * s1 + s2 * 64)>()[%arg13, %block_id_y, %48]
      %248 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3 * 64)>()[%arg13, %block_id_y, %48, %57]
      %249 = arith.cmpi sle, %arg11, %c0 : index
      %250 = arith.cmpi slt, %28, %arg9 : index
      scf.for %arg14 = %c0 to %243 step %c1 {
        %251 = affine.apply affine_map<()[s0, s1, s2] -> (s0 * s1 + s2 * 64)>()[%arg13, %block_id_y, %arg14]
        %252 = arith.cmpi slt, %251, %50 : index
        %253 = arith.ori %246, %252 : i1
        %254 = arith.cmpi slt, %251, %247 : index
        %255 = arith.cmpi sge, %251, %248 : index
        %256 = arith.ori %254, %255 : i1
        %257 = arith.andi %253, %256 : i1
        %258 = arith.andi %257, %245 : i1
        %259 = arith.andi %258, %244 : i1
        scf.if %259 {
          %264 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
          %265 = arith.cmpi slt, %251, %264 : index
          %266 = vector.broadcast %265 : i1 to vector<1xi1>
          %267 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
          vector.maskedstore %reinterpret_cast_13[%10, %267], %266, %cst_3 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
        %260 = arith.andi %258, %249 : i1
        scf.if %260 {
          %264 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
          %265 = arith.cmpi slt, %251, %264 : index
          %266 = vector.broadcast %265 : i1 to vector<1xi1>
          %267 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
          %268 = vector.maskedload %reinterpret_cast_12[%10, %267], %266, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
          vector.maskedstore %reinterpret_cast_13[%10, %267], %266, %268 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
        %261 = arith.andi %257, %250 : i1
        %262 = arith.andi %261, %244 : i1
        scf.if %262 {
          %264 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
          %265 = arith.cmpi slt, %251, %264 : index
          %266 = vector.broadcast %265 : i1 to vector<1xi1>
          %267 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
          vector.maskedstore %reinterpret_cast_13[%28, %267], %266, %cst_3 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
        %263 = arith.andi %261, %249 : i1
        scf.if %263 {
          %264 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
          %265 = arith.cmpi slt, %251, %264 : index
          %266 = vector.broadcast %265 : i1 to vector<1xi1>
          %267 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
          %268 = vector.maskedload %reinterpret_cast_12[%28, %267], %266, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
          vector.maskedstore %reinterpret_cast_13[%28, %267], %266, %268 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
        }
      }
      return
    }
  }
}
