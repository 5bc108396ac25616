// C functions that call FlashAttention-2's causal kernels with ALiBi, so that they can be timed without its PyTorch
// extension. The script in this folder builds this file against the package's own sources.
#include <cutlass/numeric_types.h>

#include <cmath>

#include "flash.h"

namespace {

/// The tensors are contiguous [batch, length, heads, head_dim] in bfloat16; lse is [batch, heads, length].
/// q and out have `queries` rows, which are the last of the `length` positions.
void describe(flash::Flash_fwd_params& p, void* q, void* k, void* v, void* out, float* lse, const float* slopes,
              int batch, int queries, int length, int heads, int head_dim) {
  const auto rounded = [](int x, int multiple) { return (x + multiple - 1) / multiple * multiple; };
  p.q_ptr = q;
  p.k_ptr = k;
  p.v_ptr = v;
  p.o_ptr = out;
  p.softmax_lse_ptr = lse;
  p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = int64_t{heads} * head_dim;
  p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = head_dim;
  p.q_batch_stride = p.o_batch_stride = int64_t{queries} * heads * head_dim;
  p.k_batch_stride = p.v_batch_stride = int64_t{length} * heads * head_dim;
  p.b = batch;
  p.h = p.h_k = heads;
  p.h_h_k_ratio = 1;
  p.seqlen_q = queries;
  p.seqlen_k = length;
  p.seqlen_q_rounded = rounded(queries, 128);
  p.seqlen_k_rounded = rounded(length, 128);
  p.d = head_dim;
  p.d_rounded = rounded(head_dim, 32);
  p.scale_softmax = 1 / std::sqrt(static_cast<float>(head_dim));
  p.scale_softmax_log2 = p.scale_softmax * static_cast<float>(M_LOG2E);
  p.p_dropout = p.rp_dropout = 1;
  p.p_dropout_in_uint8_t = 255;
  p.scale_softmax_rp_dropout = p.scale_softmax;
  p.window_size_left = length;
  p.window_size_right = 0;
  p.is_bf16 = p.is_causal = p.is_seqlens_k_cumulative = true;
  p.alibi_slopes_ptr = const_cast<float*>(slopes);
}

int last_error() { return cudaGetLastError(); }

}  // namespace

extern "C" {

/// Number of rows in the float32 sums that the backward pass needs: softmax_sums [batch, heads, fa2_rounded(length)]
/// and dq_sums [splits, batch, fa2_rounded(length), heads, head_dim]. The deterministic pass needs dq_sums filled with
/// zeros.
int fa2_rounded(int length) { return (length + 127) / 128 * 128; }

/// slopes is [heads]. All pointers are GPU pointers. Returns a cudaError_t, or -1 if head_dim was not built.
int fa2_forward(void* q, void* k, void* v, void* out, float* lse, const float* slopes, int batch, int length, int heads,
                int head_dim, void* stream) {
  flash::Flash_fwd_params p = {};
  describe(p, q, k, v, out, lse, slopes, batch, length, length, heads, head_dim);
  const auto queue = static_cast<cudaStream_t>(stream);
  if (head_dim == 64) {
    flash::run_mha_fwd_<cutlass::bfloat16_t, 64, true>(p, queue);
  } else if (head_dim == 128) {
    flash::run_mha_fwd_<cutlass::bfloat16_t, 128, true>(p, queue);
  } else {
    return -1;
  }
  return last_error();
}

/// One query for each sequence, over the keys of a cache. With splits > 1 out_sums is [splits, batch, heads, head_dim]
/// and lse_sums [splits, batch, heads]. Its package chooses the number in num_splits_heuristic().
int fa2_decode(void* q, void* k, void* v, void* out, float* lse, const float* slopes, int batch, int length, int heads,
               int head_dim, int splits, float* out_sums, float* lse_sums, void* stream) {
  flash::Flash_fwd_params p = {};
  describe(p, q, k, v, out, lse, slopes, batch, 1, length, heads, head_dim);
  p.num_splits = splits;
  p.oaccum_ptr = out_sums;
  p.softmax_lseaccum_ptr = lse_sums;
  const auto queue = static_cast<cudaStream_t>(stream);
  if (head_dim == 64) {
    flash::run_mha_fwd_splitkv_dispatch<cutlass::bfloat16_t, 64, true>(p, queue);
  } else if (head_dim == 128) {
    flash::run_mha_fwd_splitkv_dispatch<cutlass::bfloat16_t, 128, true>(p, queue);
  } else {
    return -1;
  }
  return last_error();
}

/// splits is 0 for the usual pass, which adds up its sums in any order. Otherwise it is the number of dq_sums of the
/// deterministic pass.
int fa2_backward(void* dout, void* q, void* k, void* v, void* out, float* lse, const float* slopes, void* dq, void* dk,
                 void* dv, float* softmax_sums, float* dq_sums, int splits, int batch, int length, int heads,
                 int head_dim, void* stream) {
  flash::Flash_bwd_params p = {};
  describe(p, q, k, v, out, lse, slopes, batch, length, length, heads, head_dim);
  p.do_ptr = dout;
  p.dq_ptr = dq;
  p.dk_ptr = dk;
  p.dv_ptr = dv;
  p.do_row_stride = p.dq_row_stride = p.dk_row_stride = p.dv_row_stride = p.q_row_stride;
  p.do_head_stride = p.dq_head_stride = p.dk_head_stride = p.dv_head_stride = p.q_head_stride;
  p.do_batch_stride = p.dq_batch_stride = p.dk_batch_stride = p.dv_batch_stride = p.q_batch_stride;
  p.dsoftmax_sum = softmax_sums;
  p.dq_accum_ptr = dq_sums;
  p.deterministic = splits > 0;
  p.dq_accum_split_stride = splits > 0 ? int64_t{batch} * p.seqlen_q_rounded * heads * p.d_rounded : 0;
  const auto queue = static_cast<cudaStream_t>(stream);
  if (head_dim == 64) {
    flash::run_mha_bwd_<cutlass::bfloat16_t, 64, true>(p, queue);
  } else if (head_dim == 128) {
    flash::run_mha_bwd_<cutlass::bfloat16_t, 128, true>(p, queue);
  } else {
    return -1;
  }
  return last_error();
}

}  // extern "C"
