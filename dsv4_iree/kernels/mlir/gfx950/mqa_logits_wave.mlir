// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Written by tools/generate_wave.py with wave-lang 3.9.1 and IREE 3.13.0; not by hand.
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
      %66 = affine.apply affine_map<()[s0, s1] -> (s0 + s1)>()[%65, %57]
      %67 = arith.cmpi sgt, %66, %c0 : index
      scf.if %67 {
        %70 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 16)>()[%thread_id_x]
        %71 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 16 + 32)>()[%thread_id_x]
        %72 = affine.apply affine_map<()[s0] -> ((s0 mod 64) floordiv 32)>()[%thread_id_x]
        %73 = affine.apply affine_map<()[s0] -> ((s0 mod 64) floordiv 32 + 2)>()[%thread_id_x]
        %74 = affine.apply affine_map<()[s0] -> (s0 mod 32)>()[%thread_id_x]
        %75 = affine.apply affine_map<()[s0] -> (s0 mod 32 + 32)>()[%thread_id_x]
        %76 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4)>()[%thread_id_x]
        %77 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 8)>()[%thread_id_x]
        %78 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 16)>()[%thread_id_x]
        %79 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 24)>()[%thread_id_x]
        %80 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 32)>()[%thread_id_x]
        %81 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 40)>()[%thread_id_x]
        %82 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 48)>()[%thread_id_x]
        %83 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 56)>()[%thread_id_x]
        %84 = arith.cmpi slt, %thread_id_x, %c32 : index
        %85 = arith.maxsi %42, %25 : index
        %86 = arith.minsi %44, %27 : index
        %87 = arith.cmpi sgt, %arg11, %c0 : index
        %88 = arith.cmpi slt, %10, %arg9 : index
        %89 = arith.cmpi sle, %arg11, %c0 : index
        %90 = arith.cmpi slt, %28, %arg9 : index
        scf.for %arg14 = %c0 to %57 step %c1 {
          %117 = affine.apply affine_map<()[s0, s1, s2, s3, s4] -> (s0 mod 32 + s1 * s2 + s3 * 64 + s4 * 64)>()[%thread_id_x, %arg13, %block_id_y, %48, %arg14]
          %118 = vector.load %reinterpret_cast_7[%117, %70] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %119 = vector.load %reinterpret_cast_7[%117, %71] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %120 = affine.apply affine_map<()[s0, s1, s2, s3, s4] -> (s0 mod 32 + s1 * s2 + s3 * 64 + s4 * 64 + 32)>()[%thread_id_x, %arg13, %block_id_y, %48, %arg14]
          %121 = vector.load %reinterpret_cast_7[%120, %70] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %122 = vector.load %reinterpret_cast_7[%120, %71] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %123 = vector.bitcast %118 : vector<16xi8> to vector<32xf4E2M1FN>
          %124 = vector.bitcast %119 : vector<16xi8> to vector<32xf4E2M1FN>
          %125 = vector.bitcast %121 : vector<16xi8> to vector<32xf4E2M1FN>
          %126 = vector.bitcast %122 : vector<16xi8> to vector<32xf4E2M1FN>
          %127 = vector.load %reinterpret_cast_8[%117, %72] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %128 = vector.load %reinterpret_cast_8[%117, %73] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %129 = vector.load %reinterpret_cast_8[%120, %72] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %130 = vector.load %reinterpret_cast_8[%120, %73] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %131 = vector.bitcast %127 : vector<1xi8> to vector<1xf8E8M0FNU>
          %132 = vector.bitcast %128 : vector<1xi8> to vector<1xf8E8M0FNU>
          %133 = vector.bitcast %129 : vector<1xi8> to vector<1xf8E8M0FNU>
          %134 = vector.bitcast %130 : vector<1xi8> to vector<1xf8E8M0FNU>
          %135 = vector.load %reinterpret_cast[%11, %74, %70] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %136 = vector.load %reinterpret_cast[%11, %74, %71] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %137 = vector.load %reinterpret_cast[%11, %75, %70] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %138 = vector.load %reinterpret_cast[%11, %75, %71] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %139 = vector.bitcast %135 : vector<16xi8> to vector<32xf4E2M1FN>
          %140 = vector.bitcast %136 : vector<16xi8> to vector<32xf4E2M1FN>
          %141 = vector.bitcast %137 : vector<16xi8> to vector<32xf4E2M1FN>
          %142 = vector.bitcast %138 : vector<16xi8> to vector<32xf4E2M1FN>
          %143 = vector.load %reinterpret_cast_6[%11, %74, %72] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %144 = vector.load %reinterpret_cast_6[%11, %74, %73] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %145 = vector.load %reinterpret_cast_6[%11, %75, %72] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %146 = vector.load %reinterpret_cast_6[%11, %75, %73] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %147 = vector.bitcast %143 : vector<1xi8> to vector<1xf8E8M0FNU>
          %148 = vector.bitcast %144 : vector<1xi8> to vector<1xf8E8M0FNU>
          %149 = vector.bitcast %145 : vector<1xi8> to vector<1xf8E8M0FNU>
          %150 = vector.bitcast %146 : vector<1xi8> to vector<1xf8E8M0FNU>
          %151 = vector.load %reinterpret_cast_9[%11, %76] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %152 = vector.load %reinterpret_cast_9[%11, %77] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %153 = vector.load %reinterpret_cast_9[%11, %78] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %154 = vector.load %reinterpret_cast_9[%11, %79] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %155 = vector.insert_strided_slice %151, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %156 = vector.insert_strided_slice %152, %155 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %157 = vector.insert_strided_slice %153, %156 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %158 = vector.insert_strided_slice %154, %157 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %159 = vector.load %reinterpret_cast_9[%11, %80] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %160 = vector.load %reinterpret_cast_9[%11, %81] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %161 = vector.load %reinterpret_cast_9[%11, %82] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %162 = vector.load %reinterpret_cast_9[%11, %83] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %163 = vector.insert_strided_slice %159, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %164 = vector.insert_strided_slice %160, %163 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %165 = vector.insert_strided_slice %161, %164 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %166 = vector.insert_strided_slice %162, %165 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %167 = vector.extract %147[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %168 = vector.extract %131[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %169 = amdgpu.scaled_mfma 32x32x64 (%167[0] * %139) * (%168[0] * %123) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %170 = vector.extract %148[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %171 = vector.extract %132[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %172 = amdgpu.scaled_mfma 32x32x64 (%170[0] * %140) * (%171[0] * %124) + %169 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %173 = vector.extract %149[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %174 = amdgpu.scaled_mfma 32x32x64 (%173[0] * %141) * (%168[0] * %123) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %175 = vector.extract %150[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %176 = amdgpu.scaled_mfma 32x32x64 (%175[0] * %142) * (%171[0] * %124) + %174 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %177 = vector.extract %133[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %178 = amdgpu.scaled_mfma 32x32x64 (%167[0] * %139) * (%177[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %179 = vector.extract %134[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %180 = amdgpu.scaled_mfma 32x32x64 (%170[0] * %140) * (%179[0] * %126) + %178 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %181 = amdgpu.scaled_mfma 32x32x64 (%173[0] * %141) * (%177[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %182 = amdgpu.scaled_mfma 32x32x64 (%175[0] * %142) * (%179[0] * %126) + %181 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %183 = llvm.intr.maximum(%172, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %184 = llvm.intr.maximum(%176, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %185 = llvm.intr.maximum(%180, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %186 = llvm.intr.maximum(%182, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %187 = arith.mulf %183, %158 fastmath<contract> : vector<16xf32>
          %188 = arith.mulf %184, %166 fastmath<contract> : vector<16xf32>
          %189 = arith.mulf %185, %158 fastmath<contract> : vector<16xf32>
          %190 = arith.mulf %186, %166 fastmath<contract> : vector<16xf32>
          %191 = arith.addf %187, %188 fastmath<contract> : vector<16xf32>
          %192 = vector.extract_strided_slice %191 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %193 = vector.extract_strided_slice %191 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %194 = arith.addf %192, %193 : vector<8xf32>
          %195 = vector.extract_strided_slice %194 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %196 = vector.extract_strided_slice %194 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %197 = arith.addf %195, %196 : vector<4xf32>
          %198 = vector.extract_strided_slice %197 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %199 = vector.extract_strided_slice %197 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %200 = arith.addf %198, %199 : vector<2xf32>
          %201 = vector.extract %200[0] : f32 from vector<2xf32>
          %202 = vector.extract %200[1] : f32 from vector<2xf32>
          %203 = arith.addf %201, %202 : f32
          %204 = arith.bitcast %203 : f32 to i32
          %205 = rocdl.permlane32.swap %204, %204, false, false : (i32, i32) -> <(i32, i32)>
          %206 = llvm.extractvalue %205[0] : !llvm.struct<(i32, i32)>
          %207 = arith.bitcast %206 : i32 to f32
          %208 = llvm.extractvalue %205[1] : !llvm.struct<(i32, i32)>
          %209 = arith.bitcast %208 : i32 to f32
          %210 = arith.addf %207, %209 : f32
          %211 = vector.broadcast %210 : f32 to vector<1xf32>
          %212 = arith.addf %189, %190 fastmath<contract> : vector<16xf32>
          %213 = vector.extract_strided_slice %212 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %214 = vector.extract_strided_slice %212 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %215 = arith.addf %213, %214 : vector<8xf32>
          %216 = vector.extract_strided_slice %215 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %217 = vector.extract_strided_slice %215 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %218 = arith.addf %216, %217 : vector<4xf32>
          %219 = vector.extract_strided_slice %218 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %220 = vector.extract_strided_slice %218 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %221 = arith.addf %219, %220 : vector<2xf32>
          %222 = vector.extract %221[0] : f32 from vector<2xf32>
          %223 = vector.extract %221[1] : f32 from vector<2xf32>
          %224 = arith.addf %222, %223 : f32
          %225 = arith.bitcast %224 : f32 to i32
          %226 = rocdl.permlane32.swap %225, %225, false, false : (i32, i32) -> <(i32, i32)>
          %227 = llvm.extractvalue %226[0] : !llvm.struct<(i32, i32)>
          %228 = arith.bitcast %227 : i32 to f32
          %229 = llvm.extractvalue %226[1] : !llvm.struct<(i32, i32)>
          %230 = arith.bitcast %229 : i32 to f32
          %231 = arith.addf %228, %230 : f32
          %232 = vector.broadcast %231 : f32 to vector<1xf32>
          %233 = vector.load %reinterpret_cast[%29, %74, %70] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %234 = vector.load %reinterpret_cast[%29, %74, %71] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %235 = vector.load %reinterpret_cast[%29, %75, %70] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %236 = vector.load %reinterpret_cast[%29, %75, %71] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %237 = vector.bitcast %233 : vector<16xi8> to vector<32xf4E2M1FN>
          %238 = vector.bitcast %234 : vector<16xi8> to vector<32xf4E2M1FN>
          %239 = vector.bitcast %235 : vector<16xi8> to vector<32xf4E2M1FN>
          %240 = vector.bitcast %236 : vector<16xi8> to vector<32xf4E2M1FN>
          %241 = vector.load %reinterpret_cast_6[%29, %74, %72] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %242 = vector.load %reinterpret_cast_6[%29, %74, %73] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %243 = vector.load %reinterpret_cast_6[%29, %75, %72] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %244 = vector.load %reinterpret_cast_6[%29, %75, %73] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %245 = vector.bitcast %241 : vector<1xi8> to vector<1xf8E8M0FNU>
          %246 = vector.bitcast %242 : vector<1xi8> to vector<1xf8E8M0FNU>
          %247 = vector.bitcast %243 : vector<1xi8> to vector<1xf8E8M0FNU>
          %248 = vector.bitcast %244 : vector<1xi8> to vector<1xf8E8M0FNU>
          %249 = vector.load %reinterpret_cast_9[%29, %76] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %250 = vector.load %reinterpret_cast_9[%29, %77] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %251 = vector.load %reinterpret_cast_9[%29, %78] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %252 = vector.load %reinterpret_cast_9[%29, %79] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %253 = vector.insert_strided_slice %249, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %254 = vector.insert_strided_slice %250, %253 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %255 = vector.insert_strided_slice %251, %254 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %256 = vector.insert_strided_slice %252, %255 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %257 = vector.load %reinterpret_cast_9[%29, %80] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %258 = vector.load %reinterpret_cast_9[%29, %81] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %259 = vector.load %reinterpret_cast_9[%29, %82] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %260 = vector.load %reinterpret_cast_9[%29, %83] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %261 = vector.insert_strided_slice %257, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %262 = vector.insert_strided_slice %258, %261 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %263 = vector.insert_strided_slice %259, %262 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %264 = vector.insert_strided_slice %260, %263 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %265 = vector.extract %245[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %266 = amdgpu.scaled_mfma 32x32x64 (%265[0] * %237) * (%168[0] * %123) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %267 = vector.extract %246[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %268 = amdgpu.scaled_mfma 32x32x64 (%267[0] * %238) * (%171[0] * %124) + %266 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %269 = vector.extract %247[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %270 = amdgpu.scaled_mfma 32x32x64 (%269[0] * %239) * (%168[0] * %123) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %271 = vector.extract %248[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %272 = amdgpu.scaled_mfma 32x32x64 (%271[0] * %240) * (%171[0] * %124) + %270 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %273 = amdgpu.scaled_mfma 32x32x64 (%265[0] * %237) * (%177[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %274 = amdgpu.scaled_mfma 32x32x64 (%267[0] * %238) * (%179[0] * %126) + %273 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %275 = amdgpu.scaled_mfma 32x32x64 (%269[0] * %239) * (%177[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %276 = amdgpu.scaled_mfma 32x32x64 (%271[0] * %240) * (%179[0] * %126) + %275 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %277 = llvm.intr.maximum(%268, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %278 = llvm.intr.maximum(%272, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %279 = llvm.intr.maximum(%274, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %280 = llvm.intr.maximum(%276, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %281 = arith.mulf %277, %256 fastmath<contract> : vector<16xf32>
          %282 = arith.mulf %278, %264 fastmath<contract> : vector<16xf32>
          %283 = arith.mulf %279, %256 fastmath<contract> : vector<16xf32>
          %284 = arith.mulf %280, %264 fastmath<contract> : vector<16xf32>
          %285 = arith.addf %281, %282 fastmath<contract> : vector<16xf32>
          %286 = vector.extract_strided_slice %285 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %287 = vector.extract_strided_slice %285 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %288 = arith.addf %286, %287 : vector<8xf32>
          %289 = vector.extract_strided_slice %288 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %290 = vector.extract_strided_slice %288 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %291 = arith.addf %289, %290 : vector<4xf32>
          %292 = vector.extract_strided_slice %291 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %293 = vector.extract_strided_slice %291 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %294 = arith.addf %292, %293 : vector<2xf32>
          %295 = vector.extract %294[0] : f32 from vector<2xf32>
          %296 = vector.extract %294[1] : f32 from vector<2xf32>
          %297 = arith.addf %295, %296 : f32
          %298 = arith.bitcast %297 : f32 to i32
          %299 = rocdl.permlane32.swap %298, %298, false, false : (i32, i32) -> <(i32, i32)>
          %300 = llvm.extractvalue %299[0] : !llvm.struct<(i32, i32)>
          %301 = arith.bitcast %300 : i32 to f32
          %302 = llvm.extractvalue %299[1] : !llvm.struct<(i32, i32)>
          %303 = arith.bitcast %302 : i32 to f32
          %304 = arith.addf %301, %303 : f32
          %305 = vector.broadcast %304 : f32 to vector<1xf32>
          %306 = arith.addf %283, %284 fastmath<contract> : vector<16xf32>
          %307 = vector.extract_strided_slice %306 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %308 = vector.extract_strided_slice %306 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %309 = arith.addf %307, %308 : vector<8xf32>
          %310 = vector.extract_strided_slice %309 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %311 = vector.extract_strided_slice %309 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %312 = arith.addf %310, %311 : vector<4xf32>
          %313 = vector.extract_strided_slice %312 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %314 = vector.extract_strided_slice %312 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %315 = arith.addf %313, %314 : vector<2xf32>
          %316 = vector.extract %315[0] : f32 from vector<2xf32>
          %317 = vector.extract %315[1] : f32 from vector<2xf32>
          %318 = arith.addf %316, %317 : f32
          %319 = arith.bitcast %318 : f32 to i32
          %320 = rocdl.permlane32.swap %319, %319, false, false : (i32, i32) -> <(i32, i32)>
          %321 = llvm.extractvalue %320[0] : !llvm.struct<(i32, i32)>
          %322 = arith.bitcast %321 : i32 to f32
          %323 = llvm.extractvalue %320[1] : !llvm.struct<(i32, i32)>
          %324 = arith.bitcast %323 : i32 to f32
          %325 = arith.addf %322, %324 : f32
          %326 = vector.broadcast %325 : f32 to vector<1xf32>
          %327 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3 * 64)>()[%arg13, %block_id_y, %48, %arg14]
          %328 = arith.cmpi sge, %327, %85 : index
          %329 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3 * 64 + 64)>()[%arg13, %block_id_y, %48, %arg14]
          %330 = arith.cmpi sle, %329, %86 : index
          %331 = arith.andi %328, %330 : i1
          %332 = arith.andi %331, %84 : i1
          scf.if %332 {
            vector.store %211, %reinterpret_cast_13[%10, %117] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            vector.store %232, %reinterpret_cast_13[%10, %120] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            vector.store %305, %reinterpret_cast_13[%28, %117] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            vector.store %326, %reinterpret_cast_13[%28, %120] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          }
          %333 = arith.cmpi slt, %327, %85 : index
          %334 = arith.cmpi sgt, %329, %86 : index
          %335 = arith.ori %333, %334 : i1
          %336 = arith.andi %88, %335 : i1
          %337 = arith.andi %336, %84 : i1
          %338 = arith.andi %337, %87 : i1
          scf.if %338 {
            %344 = arith.index_cast %117 : index to i32
            %345 = arith.index_cast %120 : index to i32
            %346 = arith.index_cast %344 : i32 to index
            %347 = arith.cmpi sge, %346, %25 : index
            %348 = arith.cmpi slt, %346, %27 : index
            %349 = arith.andi %347, %348 : i1
            %350 = arith.index_cast %345 : i32 to index
            %351 = arith.cmpi sge, %350, %25 : index
            %352 = arith.cmpi slt, %350, %27 : index
            %353 = arith.andi %351, %352 : i1
            %354 = arith.select %349, %210, %cst_0 : f32
            %355 = arith.select %353, %231, %cst_0 : f32
            memref.store %354, %reinterpret_cast_13[%10, %117] : memref<?x?xf32, strided<[?, 1]>>
            memref.store %355, %reinterpret_cast_13[%10, %120] : memref<?x?xf32, strided<[?, 1]>>
          }
          %339 = arith.andi %337, %89 : i1
          scf.if %339 {
            %344 = vector.load %reinterpret_cast_12[%10, %117] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            %345 = vector.load %reinterpret_cast_12[%10, %120] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            %346 = arith.index_cast %117 : index to i32
            %347 = arith.index_cast %120 : index to i32
            %348 = arith.index_cast %346 : i32 to index
            %349 = arith.cmpi sge, %348, %25 : index
            %350 = arith.cmpi slt, %348, %27 : index
            %351 = arith.andi %349, %350 : i1
            %352 = vector.broadcast %351 : i1 to vector<1xi1>
            %353 = arith.index_cast %347 : i32 to index
            %354 = arith.cmpi sge, %353, %25 : index
            %355 = arith.cmpi slt, %353, %27 : index
            %356 = arith.andi %354, %355 : i1
            %357 = vector.broadcast %356 : i1 to vector<1xi1>
            %358 = arith.select %352, %211, %344 : vector<1xi1>, vector<1xf32>
            %359 = arith.select %357, %232, %345 : vector<1xi1>, vector<1xf32>
            vector.store %358, %reinterpret_cast_13[%10, %117] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            vector.store %359, %reinterpret_cast_13[%10, %120] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          }
          %340 = arith.andi %90, %335 : i1
          %341 = arith.andi %340, %84 : i1
          %342 = arith.andi %341, %87 : i1
          scf.if %342 {
            %344 = arith.index_cast %117 : index to i32
            %345 = arith.index_cast %120 : index to i32
            %346 = arith.index_cast %344 : i32 to index
            %347 = arith.cmpi sge, %346, %42 : index
            %348 = arith.cmpi slt, %346, %44 : index
            %349 = arith.andi %347, %348 : i1
            %350 = arith.index_cast %345 : i32 to index
            %351 = arith.cmpi sge, %350, %42 : index
            %352 = arith.cmpi slt, %350, %44 : index
            %353 = arith.andi %351, %352 : i1
            %354 = arith.select %349, %304, %cst_0 : f32
            %355 = arith.select %353, %325, %cst_0 : f32
            memref.store %354, %reinterpret_cast_13[%28, %117] : memref<?x?xf32, strided<[?, 1]>>
            memref.store %355, %reinterpret_cast_13[%28, %120] : memref<?x?xf32, strided<[?, 1]>>
          }
          %343 = arith.andi %341, %89 : i1
          scf.if %343 {
            %344 = vector.load %reinterpret_cast_12[%28, %117] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            %345 = vector.load %reinterpret_cast_12[%28, %120] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            %346 = arith.index_cast %117 : index to i32
            %347 = arith.index_cast %120 : index to i32
            %348 = arith.index_cast %346 : i32 to index
            %349 = arith.cmpi sge, %348, %42 : index
            %350 = arith.cmpi slt, %348, %44 : index
            %351 = arith.andi %349, %350 : i1
            %352 = vector.broadcast %351 : i1 to vector<1xi1>
            %353 = arith.index_cast %347 : i32 to index
            %354 = arith.cmpi sge, %353, %42 : index
            %355 = arith.cmpi slt, %353, %44 : index
            %356 = arith.andi %354, %355 : i1
            %357 = vector.broadcast %356 : i1 to vector<1xi1>
            %358 = arith.select %352, %305, %344 : vector<1xi1>, vector<1xf32>
            %359 = arith.select %357, %326, %345 : vector<1xi1>, vector<1xf32>
            vector.store %358, %reinterpret_cast_13[%28, %117] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
            vector.store %359, %reinterpret_cast_13[%28, %120] : memref<?x?xf32, strided<[?, 1]>>, vector<1xf32>
          }
        }
        %91 = affine.apply affine_map<()[s0] -> (s0 - 1)>()[%arg10]
        %92 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 16)>()[%thread_id_x]
        %93 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 16 + 32)>()[%thread_id_x]
        %94 = affine.apply affine_map<()[s0] -> ((s0 mod 64) floordiv 32)>()[%thread_id_x]
        %95 = affine.apply affine_map<()[s0] -> ((s0 mod 64) floordiv 32 + 2)>()[%thread_id_x]
        %96 = affine.apply affine_map<()[s0] -> (s0 mod 32)>()[%thread_id_x]
        %97 = affine.apply affine_map<()[s0] -> (s0 mod 32 + 32)>()[%thread_id_x]
        %98 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4)>()[%thread_id_x]
        %99 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 8)>()[%thread_id_x]
        %100 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 16)>()[%thread_id_x]
        %101 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 24)>()[%thread_id_x]
        %102 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 32)>()[%thread_id_x]
        %103 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 40)>()[%thread_id_x]
        %104 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 48)>()[%thread_id_x]
        %105 = affine.apply affine_map<()[s0] -> (((s0 mod 64) floordiv 32) * 4 + 56)>()[%thread_id_x]
        %106 = arith.cmpi sgt, %arg11, %c0 : index
        %107 = arith.cmpi slt, %thread_id_x, %c32 : index
        %108 = arith.cmpi slt, %10, %arg9 : index
        %109 = arith.andi %107, %108 : i1
        %110 = arith.andi %109, %106 : i1
        %111 = arith.cmpi sle, %arg11, %c0 : index
        %112 = arith.andi %109, %111 : i1
        %113 = arith.cmpi slt, %28, %arg9 : index
        %114 = arith.andi %107, %113 : i1
        %115 = arith.andi %114, %106 : i1
        %116 = arith.andi %114, %111 : i1
        scf.for %arg14 = %c0 to %65 step %c1 {
          %117 = affine.apply affine_map<()[s0, s1, s2] -> (s0 + s2 * 64 - (s0 floordiv 32) * 32 + (s1 floordiv 64) * 64)>()[%thread_id_x, %arg10, %arg14]
          %118 = arith.minsi %117, %91 : index
          %119 = vector.load %reinterpret_cast_7[%118, %92] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %120 = vector.load %reinterpret_cast_7[%118, %93] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %121 = affine.apply affine_map<()[s0, s1, s2] -> (s0 + s2 * 64 - (s0 floordiv 32) * 32 + (s1 floordiv 64) * 64 + 32)>()[%thread_id_x, %arg10, %arg14]
          %122 = arith.minsi %121, %91 : index
          %123 = vector.load %reinterpret_cast_7[%122, %92] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %124 = vector.load %reinterpret_cast_7[%122, %93] : memref<?x64xi8, strided<[64, 1]>>, vector<16xi8>
          %125 = vector.bitcast %119 : vector<16xi8> to vector<32xf4E2M1FN>
          %126 = vector.bitcast %120 : vector<16xi8> to vector<32xf4E2M1FN>
          %127 = vector.bitcast %123 : vector<16xi8> to vector<32xf4E2M1FN>
          %128 = vector.bitcast %124 : vector<16xi8> to vector<32xf4E2M1FN>
          %129 = vector.load %reinterpret_cast_8[%118, %94] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %130 = vector.load %reinterpret_cast_8[%118, %95] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %131 = vector.load %reinterpret_cast_8[%122, %94] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %132 = vector.load %reinterpret_cast_8[%122, %95] : memref<?x4xi8, strided<[4, 1]>>, vector<1xi8>
          %133 = vector.bitcast %129 : vector<1xi8> to vector<1xf8E8M0FNU>
          %134 = vector.bitcast %130 : vector<1xi8> to vector<1xf8E8M0FNU>
          %135 = vector.bitcast %131 : vector<1xi8> to vector<1xf8E8M0FNU>
          %136 = vector.bitcast %132 : vector<1xi8> to vector<1xf8E8M0FNU>
          %137 = vector.load %reinterpret_cast[%11, %96, %92] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %138 = vector.load %reinterpret_cast[%11, %96, %93] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %139 = vector.load %reinterpret_cast[%11, %97, %92] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %140 = vector.load %reinterpret_cast[%11, %97, %93] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %141 = vector.bitcast %137 : vector<16xi8> to vector<32xf4E2M1FN>
          %142 = vector.bitcast %138 : vector<16xi8> to vector<32xf4E2M1FN>
          %143 = vector.bitcast %139 : vector<16xi8> to vector<32xf4E2M1FN>
          %144 = vector.bitcast %140 : vector<16xi8> to vector<32xf4E2M1FN>
          %145 = vector.load %reinterpret_cast_6[%11, %96, %94] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %146 = vector.load %reinterpret_cast_6[%11, %96, %95] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %147 = vector.load %reinterpret_cast_6[%11, %97, %94] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %148 = vector.load %reinterpret_cast_6[%11, %97, %95] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %149 = vector.bitcast %145 : vector<1xi8> to vector<1xf8E8M0FNU>
          %150 = vector.bitcast %146 : vector<1xi8> to vector<1xf8E8M0FNU>
          %151 = vector.bitcast %147 : vector<1xi8> to vector<1xf8E8M0FNU>
          %152 = vector.bitcast %148 : vector<1xi8> to vector<1xf8E8M0FNU>
          %153 = vector.load %reinterpret_cast_9[%11, %98] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %154 = vector.load %reinterpret_cast_9[%11, %99] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %155 = vector.load %reinterpret_cast_9[%11, %100] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %156 = vector.load %reinterpret_cast_9[%11, %101] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %157 = vector.insert_strided_slice %153, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %158 = vector.insert_strided_slice %154, %157 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %159 = vector.insert_strided_slice %155, %158 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %160 = vector.insert_strided_slice %156, %159 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %161 = vector.load %reinterpret_cast_9[%11, %102] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %162 = vector.load %reinterpret_cast_9[%11, %103] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %163 = vector.load %reinterpret_cast_9[%11, %104] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %164 = vector.load %reinterpret_cast_9[%11, %105] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %165 = vector.insert_strided_slice %161, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %166 = vector.insert_strided_slice %162, %165 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %167 = vector.insert_strided_slice %163, %166 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %168 = vector.insert_strided_slice %164, %167 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %169 = vector.extract %149[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %170 = vector.extract %133[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %171 = amdgpu.scaled_mfma 32x32x64 (%169[0] * %141) * (%170[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %172 = vector.extract %150[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %173 = vector.extract %134[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %174 = amdgpu.scaled_mfma 32x32x64 (%172[0] * %142) * (%173[0] * %126) + %171 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %175 = vector.extract %151[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %176 = amdgpu.scaled_mfma 32x32x64 (%175[0] * %143) * (%170[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %177 = vector.extract %152[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %178 = amdgpu.scaled_mfma 32x32x64 (%177[0] * %144) * (%173[0] * %126) + %176 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %179 = vector.extract %135[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %180 = amdgpu.scaled_mfma 32x32x64 (%169[0] * %141) * (%179[0] * %127) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %181 = vector.extract %136[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %182 = amdgpu.scaled_mfma 32x32x64 (%172[0] * %142) * (%181[0] * %128) + %180 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %183 = amdgpu.scaled_mfma 32x32x64 (%175[0] * %143) * (%179[0] * %127) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %184 = amdgpu.scaled_mfma 32x32x64 (%177[0] * %144) * (%181[0] * %128) + %183 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %185 = llvm.intr.maximum(%174, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %186 = llvm.intr.maximum(%178, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %187 = llvm.intr.maximum(%182, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %188 = llvm.intr.maximum(%184, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %189 = arith.mulf %185, %160 fastmath<contract> : vector<16xf32>
          %190 = arith.mulf %186, %168 fastmath<contract> : vector<16xf32>
          %191 = arith.mulf %187, %160 fastmath<contract> : vector<16xf32>
          %192 = arith.mulf %188, %168 fastmath<contract> : vector<16xf32>
          %193 = arith.addf %189, %190 fastmath<contract> : vector<16xf32>
          %194 = vector.extract_strided_slice %193 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %195 = vector.extract_strided_slice %193 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %196 = arith.addf %194, %195 : vector<8xf32>
          %197 = vector.extract_strided_slice %196 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %198 = vector.extract_strided_slice %196 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %199 = arith.addf %197, %198 : vector<4xf32>
          %200 = vector.extract_strided_slice %199 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %201 = vector.extract_strided_slice %199 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %202 = arith.addf %200, %201 : vector<2xf32>
          %203 = vector.extract %202[0] : f32 from vector<2xf32>
          %204 = vector.extract %202[1] : f32 from vector<2xf32>
          %205 = arith.addf %203, %204 : f32
          %206 = arith.bitcast %205 : f32 to i32
          %207 = rocdl.permlane32.swap %206, %206, false, false : (i32, i32) -> <(i32, i32)>
          %208 = llvm.extractvalue %207[0] : !llvm.struct<(i32, i32)>
          %209 = arith.bitcast %208 : i32 to f32
          %210 = llvm.extractvalue %207[1] : !llvm.struct<(i32, i32)>
          %211 = arith.bitcast %210 : i32 to f32
          %212 = arith.addf %209, %211 : f32
          %213 = vector.broadcast %212 : f32 to vector<1xf32>
          %214 = arith.addf %191, %192 fastmath<contract> : vector<16xf32>
          %215 = vector.extract_strided_slice %214 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %216 = vector.extract_strided_slice %214 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %217 = arith.addf %215, %216 : vector<8xf32>
          %218 = vector.extract_strided_slice %217 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %219 = vector.extract_strided_slice %217 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %220 = arith.addf %218, %219 : vector<4xf32>
          %221 = vector.extract_strided_slice %220 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %222 = vector.extract_strided_slice %220 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %223 = arith.addf %221, %222 : vector<2xf32>
          %224 = vector.extract %223[0] : f32 from vector<2xf32>
          %225 = vector.extract %223[1] : f32 from vector<2xf32>
          %226 = arith.addf %224, %225 : f32
          %227 = arith.bitcast %226 : f32 to i32
          %228 = rocdl.permlane32.swap %227, %227, false, false : (i32, i32) -> <(i32, i32)>
          %229 = llvm.extractvalue %228[0] : !llvm.struct<(i32, i32)>
          %230 = arith.bitcast %229 : i32 to f32
          %231 = llvm.extractvalue %228[1] : !llvm.struct<(i32, i32)>
          %232 = arith.bitcast %231 : i32 to f32
          %233 = arith.addf %230, %232 : f32
          %234 = vector.broadcast %233 : f32 to vector<1xf32>
          %235 = vector.load %reinterpret_cast[%29, %96, %92] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %236 = vector.load %reinterpret_cast[%29, %96, %93] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %237 = vector.load %reinterpret_cast[%29, %97, %92] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %238 = vector.load %reinterpret_cast[%29, %97, %93] : memref<?x64x64xi8, strided<[4096, 64, 1]>>, vector<16xi8>
          %239 = vector.bitcast %235 : vector<16xi8> to vector<32xf4E2M1FN>
          %240 = vector.bitcast %236 : vector<16xi8> to vector<32xf4E2M1FN>
          %241 = vector.bitcast %237 : vector<16xi8> to vector<32xf4E2M1FN>
          %242 = vector.bitcast %238 : vector<16xi8> to vector<32xf4E2M1FN>
          %243 = vector.load %reinterpret_cast_6[%29, %96, %94] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %244 = vector.load %reinterpret_cast_6[%29, %96, %95] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %245 = vector.load %reinterpret_cast_6[%29, %97, %94] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %246 = vector.load %reinterpret_cast_6[%29, %97, %95] : memref<?x64x4xi8, strided<[256, 4, 1]>>, vector<1xi8>
          %247 = vector.bitcast %243 : vector<1xi8> to vector<1xf8E8M0FNU>
          %248 = vector.bitcast %244 : vector<1xi8> to vector<1xf8E8M0FNU>
          %249 = vector.bitcast %245 : vector<1xi8> to vector<1xf8E8M0FNU>
          %250 = vector.bitcast %246 : vector<1xi8> to vector<1xf8E8M0FNU>
          %251 = vector.load %reinterpret_cast_9[%29, %98] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %252 = vector.load %reinterpret_cast_9[%29, %99] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %253 = vector.load %reinterpret_cast_9[%29, %100] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %254 = vector.load %reinterpret_cast_9[%29, %101] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %255 = vector.insert_strided_slice %251, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %256 = vector.insert_strided_slice %252, %255 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %257 = vector.insert_strided_slice %253, %256 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %258 = vector.insert_strided_slice %254, %257 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %259 = vector.load %reinterpret_cast_9[%29, %102] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %260 = vector.load %reinterpret_cast_9[%29, %103] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %261 = vector.load %reinterpret_cast_9[%29, %104] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %262 = vector.load %reinterpret_cast_9[%29, %105] : memref<?x64xf32, strided<[64, 1]>>, vector<4xf32>
          %263 = vector.insert_strided_slice %259, %cst_4 offsets = [0], strides = [1] : vector<4xf32> into vector<16xf32>
          %264 = vector.insert_strided_slice %260, %263 offsets = [4], strides = [1] : vector<4xf32> into vector<16xf32>
          %265 = vector.insert_strided_slice %261, %264 offsets = [8], strides = [1] : vector<4xf32> into vector<16xf32>
          %266 = vector.insert_strided_slice %262, %265 offsets = [12], strides = [1] : vector<4xf32> into vector<16xf32>
          %267 = vector.extract %247[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %268 = amdgpu.scaled_mfma 32x32x64 (%267[0] * %239) * (%170[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %269 = vector.extract %248[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %270 = amdgpu.scaled_mfma 32x32x64 (%269[0] * %240) * (%173[0] * %126) + %268 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %271 = vector.extract %249[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %272 = amdgpu.scaled_mfma 32x32x64 (%271[0] * %241) * (%170[0] * %125) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %273 = vector.extract %250[0] : f8E8M0FNU from vector<1xf8E8M0FNU>
          %274 = amdgpu.scaled_mfma 32x32x64 (%273[0] * %242) * (%173[0] * %126) + %272 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %275 = amdgpu.scaled_mfma 32x32x64 (%267[0] * %239) * (%179[0] * %127) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %276 = amdgpu.scaled_mfma 32x32x64 (%269[0] * %240) * (%181[0] * %128) + %275 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %277 = amdgpu.scaled_mfma 32x32x64 (%271[0] * %241) * (%179[0] * %127) + %cst_4 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %278 = amdgpu.scaled_mfma 32x32x64 (%273[0] * %242) * (%181[0] * %128) + %277 : f8E8M0FNU, vector<32xf4E2M1FN>, f8E8M0FNU, vector<32xf4E2M1FN>, vector<16xf32>
          %279 = llvm.intr.maximum(%270, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %280 = llvm.intr.maximum(%274, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %281 = llvm.intr.maximum(%276, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %282 = llvm.intr.maximum(%278, %cst_4) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
          %283 = arith.mulf %279, %258 fastmath<contract> : vector<16xf32>
          %284 = arith.mulf %280, %266 fastmath<contract> : vector<16xf32>
          %285 = arith.mulf %281, %258 fastmath<contract> : vector<16xf32>
          %286 = arith.mulf %282, %266 fastmath<contract> : vector<16xf32>
          %287 = arith.addf %283, %284 fastmath<contract> : vector<16xf32>
          %288 = vector.extract_strided_slice %287 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %289 = vector.extract_strided_slice %287 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %290 = arith.addf %288, %289 : vector<8xf32>
          %291 = vector.extract_strided_slice %290 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %292 = vector.extract_strided_slice %290 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %293 = arith.addf %291, %292 : vector<4xf32>
          %294 = vector.extract_strided_slice %293 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %295 = vector.extract_strided_slice %293 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %296 = arith.addf %294, %295 : vector<2xf32>
          %297 = vector.extract %296[0] : f32 from vector<2xf32>
          %298 = vector.extract %296[1] : f32 from vector<2xf32>
          %299 = arith.addf %297, %298 : f32
          %300 = arith.bitcast %299 : f32 to i32
          %301 = rocdl.permlane32.swap %300, %300, false, false : (i32, i32) -> <(i32, i32)>
          %302 = llvm.extractvalue %301[0] : !llvm.struct<(i32, i32)>
          %303 = arith.bitcast %302 : i32 to f32
          %304 = llvm.extractvalue %301[1] : !llvm.struct<(i32, i32)>
          %305 = arith.bitcast %304 : i32 to f32
          %306 = arith.addf %303, %305 : f32
          %307 = vector.broadcast %306 : f32 to vector<1xf32>
          %308 = arith.addf %285, %286 fastmath<contract> : vector<16xf32>
          %309 = vector.extract_strided_slice %308 offsets = [0], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %310 = vector.extract_strided_slice %308 offsets = [8], sizes = [8], strides = [1] : vector<16xf32> to vector<8xf32>
          %311 = arith.addf %309, %310 : vector<8xf32>
          %312 = vector.extract_strided_slice %311 offsets = [0], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %313 = vector.extract_strided_slice %311 offsets = [4], sizes = [4], strides = [1] : vector<8xf32> to vector<4xf32>
          %314 = arith.addf %312, %313 : vector<4xf32>
          %315 = vector.extract_strided_slice %314 offsets = [0], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %316 = vector.extract_strided_slice %314 offsets = [2], sizes = [2], strides = [1] : vector<4xf32> to vector<2xf32>
          %317 = arith.addf %315, %316 : vector<2xf32>
          %318 = vector.extract %317[0] : f32 from vector<2xf32>
          %319 = vector.extract %317[1] : f32 from vector<2xf32>
          %320 = arith.addf %318, %319 : f32
          %321 = arith.bitcast %320 : f32 to i32
          %322 = rocdl.permlane32.swap %321, %321, false, false : (i32, i32) -> <(i32, i32)>
          %323 = llvm.extractvalue %322[0] : !llvm.struct<(i32, i32)>
          %324 = arith.bitcast %323 : i32 to f32
          %325 = llvm.extractvalue %322[1] : !llvm.struct<(i32, i32)>
          %326 = arith.bitcast %325 : i32 to f32
          %327 = arith.addf %324, %326 : f32
          %328 = vector.broadcast %327 : f32 to vector<1xf32>
          scf.if %110 {
            %329 = arith.index_cast %117 : index to i32
            %330 = arith.index_cast %121 : index to i32
            %331 = arith.index_cast %329 : i32 to index
            %332 = arith.cmpi sge, %331, %25 : index
            %333 = arith.cmpi slt, %331, %27 : index
            %334 = arith.andi %332, %333 : i1
            %335 = arith.index_cast %330 : i32 to index
            %336 = arith.cmpi sge, %335, %25 : index
            %337 = arith.cmpi slt, %335, %27 : index
            %338 = arith.andi %336, %337 : i1
            %339 = arith.select %334, %212, %cst_0 : f32
            %340 = vector.broadcast %339 : f32 to vector<1xf32>
            %341 = arith.select %338, %233, %cst_0 : f32
            %342 = vector.broadcast %341 : f32 to vector<1xf32>
            %343 = arith.cmpi slt, %117, %arg10 : index
            %344 = vector.broadcast %343 : i1 to vector<1xi1>
            vector.maskedstore %reinterpret_cast_13[%10, %117], %344, %340 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
            %345 = arith.cmpi slt, %121, %arg10 : index
            %346 = vector.broadcast %345 : i1 to vector<1xi1>
            vector.maskedstore %reinterpret_cast_13[%10, %121], %346, %342 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
          scf.if %112 {
            %329 = arith.cmpi slt, %117, %arg10 : index
            %330 = vector.broadcast %329 : i1 to vector<1xi1>
            %331 = vector.maskedload %reinterpret_cast_12[%10, %117], %330, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
            %332 = arith.cmpi slt, %121, %arg10 : index
            %333 = vector.broadcast %332 : i1 to vector<1xi1>
            %334 = vector.maskedload %reinterpret_cast_12[%10, %121], %333, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
            %335 = arith.index_cast %117 : index to i32
            %336 = arith.index_cast %121 : index to i32
            %337 = arith.index_cast %335 : i32 to index
            %338 = arith.cmpi sge, %337, %25 : index
            %339 = arith.cmpi slt, %337, %27 : index
            %340 = arith.andi %338, %339 : i1
            %341 = vector.broadcast %340 : i1 to vector<1xi1>
            %342 = arith.index_cast %336 : i32 to index
            %343 = arith.cmpi sge, %342, %25 : index
            %344 = arith.cmpi slt, %342, %27 : index
            %345 = arith.andi %343, %344 : i1
            %346 = vector.broadcast %345 : i1 to vector<1xi1>
            %347 = arith.select %341, %213, %331 : vector<1xi1>, vector<1xf32>
            %348 = arith.select %346, %234, %334 : vector<1xi1>, vector<1xf32>
            vector.maskedstore %reinterpret_cast_13[%10, %117], %330, %347 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
            vector.maskedstore %reinterpret_cast_13[%10, %121], %333, %348 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
          scf.if %115 {
            %329 = arith.index_cast %117 : index to i32
            %330 = arith.index_cast %121 : index to i32
            %331 = arith.index_cast %329 : i32 to index
            %332 = arith.cmpi sge, %331, %42 : index
            %333 = arith.cmpi slt, %331, %44 : index
            %334 = arith.andi %332, %333 : i1
            %335 = arith.index_cast %330 : i32 to index
            %336 = arith.cmpi sge, %335, %42 : index
            %337 = arith.cmpi slt, %335, %44 : index
            %338 = arith.andi %336, %337 : i1
            %339 = arith.select %334, %306, %cst_0 : f32
            %340 = vector.broadcast %339 : f32 to vector<1xf32>
            %341 = arith.select %338, %327, %cst_0 : f32
            %342 = vector.broadcast %341 : f32 to vector<1xf32>
            %343 = arith.cmpi slt, %117, %arg10 : index
            %344 = vector.broadcast %343 : i1 to vector<1xi1>
            vector.maskedstore %reinterpret_cast_13[%28, %117], %344, %340 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
            %345 = arith.cmpi slt, %121, %arg10 : index
            %346 = vector.broadcast %345 : i1 to vector<1xi1>
            vector.maskedstore %reinterpret_cast_13[%28, %121], %346, %342 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
          scf.if %116 {
            %329 = arith.cmpi slt, %117, %arg10 : index
            %330 = vector.broadcast %329 : i1 to vector<1xi1>
            %331 = vector.maskedload %reinterpret_cast_12[%28, %117], %330, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
            %332 = arith.cmpi slt, %121, %arg10 : index
            %333 = vector.broadcast %332 : i1 to vector<1xi1>
            %334 = vector.maskedload %reinterpret_cast_12[%28, %121], %333, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
            %335 = arith.index_cast %117 : index to i32
            %336 = arith.index_cast %121 : index to i32
            %337 = arith.index_cast %335 : i32 to index
            %338 = arith.cmpi sge, %337, %42 : index
            %339 = arith.cmpi slt, %337, %44 : index
            %340 = arith.andi %338, %339 : i1
            %341 = vector.broadcast %340 : i1 to vector<1xi1>
            %342 = arith.index_cast %336 : i32 to index
            %343 = arith.cmpi sge, %342, %42 : index
            %344 = arith.cmpi slt, %342, %44 : index
            %345 = arith.andi %343, %344 : i1
            %346 = vector.broadcast %345 : i1 to vector<1xi1>
            %347 = arith.select %341, %307, %331 : vector<1xi1>, vector<1xf32>
            %348 = arith.select %346, %328, %334 : vector<1xi1>, vector<1xf32>
            vector.maskedstore %reinterpret_cast_13[%28, %117], %330, %347 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
            vector.maskedstore %reinterpret_cast_13[%28, %121], %333, %348 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
        }
      }
      %68 = affine.apply affine_map<()[s0, s1, s2] -> ((s2 - s0 * s1) ceildiv 64)>()[%arg13, %block_id_y, %61]
      %69 = arith.cmpi slt, %66, %68 : index
      scf.if %69 {
        %70 = arith.cmpi sgt, %arg11, %c0 : index
        %71 = arith.cmpi slt, %10, %arg9 : index
        %72 = arith.cmpi slt, %65, %c1 : index
        %73 = affine.apply affine_map<()[s0, s1, s2] -> (s0 * s1 + s2 * 64)>()[%arg13, %block_id_y, %48]
        %74 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3 * 64)>()[%arg13, %block_id_y, %48, %57]
        %75 = arith.cmpi sle, %arg11, %c0 : index
        %76 = arith.cmpi slt, %28, %arg9 : index
        scf.for %arg14 = %c0 to %68 step %c1 {
          %77 = affine.apply affine_map<()[s0, s1, s2] -> (s0 * s1 + s2 * 64)>()[%arg13, %block_id_y, %arg14]
          %78 = arith.cmpi slt, %77, %50 : index
          %79 = arith.ori %72, %78 : i1
          %80 = arith.cmpi slt, %77, %73 : index
          %81 = arith.cmpi sge, %77, %74 : index
          %82 = arith.ori %80, %81 : i1
          %83 = arith.andi %79, %82 : i1
          %84 = arith.andi %83, %71 : i1
          %85 = arith.andi %84, %70 : i1
          scf.if %85 {
            %90 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
            %91 = arith.cmpi slt, %77, %90 : index
            %92 = vector.broadcast %91 : i1 to vector<1xi1>
            %93 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
            vector.maskedstore %reinterpret_cast_13[%10, %93], %92, %cst_3 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
          %86 = arith.andi %84, %75 : i1
          scf.if %86 {
            %90 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
            %91 = arith.cmpi slt, %77, %90 : index
            %92 = vector.broadcast %91 : i1 to vector<1xi1>
            %93 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
            %94 = vector.maskedload %reinterpret_cast_12[%10, %93], %92, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
            vector.maskedstore %reinterpret_cast_13[%10, %93], %92, %94 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
          %87 = arith.andi %83, %76 : i1
          %88 = arith.andi %87, %70 : i1
          scf.if %88 {
            %90 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
            %91 = arith.cmpi slt, %77, %90 : index
            %92 = vector.broadcast %91 : i1 to vector<1xi1>
            %93 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
            vector.maskedstore %reinterpret_cast_13[%28, %93], %92, %cst_3 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
          %89 = arith.andi %87, %75 : i1
          scf.if %89 {
            %90 = affine.apply affine_map<()[s0, s1] -> (-s0 + s1)>()[%thread_id_x, %arg10]
            %91 = arith.cmpi slt, %77, %90 : index
            %92 = vector.broadcast %91 : i1 to vector<1xi1>
            %93 = affine.apply affine_map<()[s0, s1, s2, s3] -> (s0 * s1 + s2 * 64 + s3)>()[%arg13, %block_id_y, %arg14, %thread_id_x]
            %94 = vector.maskedload %reinterpret_cast_12[%28, %93], %92, %cst : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32> into vector<1xf32>
            vector.maskedstore %reinterpret_cast_13[%28, %93], %92, %94 : memref<?x?xf32, strided<[?, 1]>>, vector<1xi1>, vector<1xf32>
          }
        }
      }
      return
    }
  }
}
