// Operations of the lanes of a warp and of the threads of a block. On a GPU they are instructions (compute capability
// 8.0 and later). Elsewhere they are emulated (lane_emulated.h), so that the same kernel source runs on both.
//
// Addresses in shared memory are byte offsets from its beginning. A fragment has the elements that PTX's m16n8k16
// assigns to a lane: of the 16 x 8 sums, d[0..1] belong to row lane / 4 and d[2..3] to the row 8 below it, in columns 2
// (lane % 4) and 2 (lane % 4) + 1.
#pragma once

#include <cstdint>

#include "attention/cuda/arguments.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>

#define ALIBI_LANE __device__ __forceinline__
#define ALIBI_UNROLLED _Pragma("unroll")
#define ALIBI_UNROLLED_BY_8 _Pragma("unroll 8")
#define ALIBI_NOT_UNROLLED _Pragma("unroll 1")
// The emulated kernels and the real ones need different names, because a program may contain both.
#define ALIBI_LANES_BEGIN          \
  namespace alibi::kernels::cuda { \
  inline namespace on_device {
#define ALIBI_LANES_END \
  }                     \
  }

ALIBI_LANES_BEGIN

using std::int32_t;
using std::uint32_t;

extern __shared__ __align__(1024) unsigned char shared_memory[];

ALIBI_LANE int thread_index() { return static_cast<int>(threadIdx.x); }
ALIBI_LANE int block_index() { return static_cast<int>(blockIdx.x); }

/// The thread's index. The compiler recomputes values that depend on the result here instead of keeping them in
/// registers across a loop.
ALIBI_LANE int thread_index_here() {
  int index = thread_index();
  asm volatile("" : "+r"(index));
  __builtin_assume(index >= 0 && index < 1024);  // so that divisions are shifts
  return index;
}

ALIBI_LANE void block_sync() { __syncthreads(); }
/// A block_sync() that returns whether `yes` is true in all threads.
ALIBI_LANE bool block_all(bool yes) { return __syncthreads_and(yes) != 0; }
ALIBI_LANE void warp_sync() { __syncwarp(); }
/// One bit for each lane.
ALIBI_LANE uint32_t warp_votes(bool yes) { return __ballot_sync(~0u, yes); }
ALIBI_LANE int lowest_bit(uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }
/// The value in the lane whose number is this lane's number XOR `bits`.
ALIBI_LANE float lane_xor(float value, int bits) { return __shfl_xor_sync(~0u, value, bits); }

template <class V>
ALIBI_LANE V shared_load(uint32_t address) {
  return *reinterpret_cast<const V*>(shared_memory + address);
}
template <class V>
ALIBI_LANE void shared_store(uint32_t address, const V& value) {
  *reinterpret_cast<V*>(shared_memory + address) = value;
}

ALIBI_LANE uint32_t shared_base() { return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)); }

/// Starts a copy of 16 bytes. If `real` is false, writes zeros and reads nothing.
ALIBI_LANE void copy16(uint32_t address, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_base() + address), "l"(from),
               "r"(real ? 16 : 0)
               : "memory");
}
/// Like copy16(), for 8 bytes.
ALIBI_LANE void copy8(uint32_t address, const void* from, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_base() + address), "l"(from),
               "r"(real ? 8 : 0)
               : "memory");
}
/// Groups the thread's copies since the last call.
ALIBI_LANE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until all but the last `left` groups of this thread's copies have arrived. Other threads see the data after a
/// barrier.
template <int left>
ALIBI_LANE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Communication between blocks of threads of one kernel. The threads of a block store values for others and pass a
// barrier, then one of them raises a count. Others see the values after one of their threads has waited for the count
// and all have passed a barrier. (PTX ISA, "Memory consistency model": release and acquire include what other threads
// of the block did before the barrier, as in cooperative groups and CUTLASS.)
ALIBI_LANE int take_ticket(int32_t* next) { return atomicAdd(next, 1); }
ALIBI_LANE void wait_for_count(const int32_t* count, int value) {
  int found;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
  } while (found != value);
}
ALIBI_LANE void raise_count(int32_t* count) {
  // The fence also publishes what other threads of the block stored before the barrier.
  asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}
/// The lane's values number i are at `to` + 128 i. These functions bypass the caches that other thread blocks do not
/// share.
template <int n>
ALIBI_LANE void store_for_others(float* to, const float (&x)[n][4]) {
  ALIBI_UNROLLED
  for (int i = 0; i < n; ++i) {
    __stcg(reinterpret_cast<float4*>(to + i * 128), make_float4(x[i][0], x[i][1], x[i][2], x[i][3]));
  }
}
template <int n>
ALIBI_LANE void load_from_others(float (&x)[n][4], const float* from) {
  ALIBI_UNROLLED
  for (int i = 0; i < n; ++i) {
    const float4 other = __ldcg(reinterpret_cast<const float4*>(from + i * 128));
    x[i][0] = other.x;
    x[i][1] = other.y;
    x[i][2] = other.z;
    x[i][3] = other.w;
  }
}

/// Loads four 8 x 8 matrices. Lane i passes the address of row i % 8 of matrix i / 8.
ALIBI_LANE void load4(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_base() + address));
}
ALIBI_LANE void load4_transposed(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_base() + address));
}

/// d += a b.
template <Type type>
ALIBI_LANE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (type == Type::bfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Rounds two values to nearest. The first one is in the lower half.
template <Type type>
ALIBI_LANE uint32_t pack(float low, float high) {
  uint32_t both;
  if constexpr (type == Type::bfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
}
template <Type type>
ALIBI_LANE float unpack(uint32_t both, int which) {
  const auto bits = static_cast<unsigned short>(both >> (16 * which));
  if constexpr (type == Type::bfloat16) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  } else {
    return __half2float(__ushort_as_half(bits));
  }
}

/// 2^x, relative error below 2^-21; 0 below 2^-126.
ALIBI_LANE float power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::blocks_at_once)
    run(const __grid_constant__ typename Body::Arguments arguments) {
  Body::run(arguments);
}

/// Returns a cudaError_t.
template <class Body>
int launch(int64_t blocks, const typename Body::Arguments& arguments, void* stream) {
  if (blocks == 0) return cudaSuccess;
  constexpr int granted = 48 << 10;
  if (Body::shared_bytes > granted) {  // requested once on each GPU; the call also clears errors of other libraries
    static std::atomic<uint64_t> asked = 0;
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
    if ((asked & bit) == 0) {
      const cudaError_t error =
          cudaFuncSetAttribute(run<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, Body::shared_bytes);
      if (error != cudaSuccess) return error;
      asked |= bit;
    }
  }
  // This returns the error of this launch. cudaGetLastError() could also return an earlier error of another library.
  void* pointers[] = {const_cast<typename Body::Arguments*>(&arguments)};
  return cudaLaunchKernel(run<Body>, static_cast<unsigned>(blocks), Body::threads, pointers, Body::shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

ALIBI_LANES_END

#else
#include "attention/cuda/lane_emulated.h"
#endif
