// Attention that skips: prefill and decode, dense or with Skip Softmax (BLASST, arXiv 2512.12087).
//
// Softmax, P.V and the V bytes of key blocks far below the running maximum are dropped. Key tiles are visited newest
// first. Sizes below: total_q query tokens over all requests, heads_q query heads, heads_kv key/value heads (heads_q is
// a multiple of heads_kv), d the head size of query and key, dv that of value and output.
#pragma once

#include <cstddef>
#include <cstdint>

#include "longhaul/export.h"
#include "longhaul/tensor.h"

namespace longhaul {

enum class Phase : int32_t { prefill = 0, decode = 1 };

/// What a block's maximum is compared with. Numeric values are part of the C ABI.
enum class SkipRule : int32_t {
  max = 0,  ///< the largest score the row has met so far, the block's own tile included (the published rule)
  sum = 1,  ///< ln(kept mass of the tiles before + exp(largest score of the own tile))
};

/// The skip threshold: a block is skipped iff for every row of its voting group m_block - m_ref < ln(lambda).
struct Lambda {
  enum class Kind : int32_t { none = 0, scalar = 1, per_head = 2 };
  Kind kind = Kind::none;
  float value = 0.0F;  ///< scalar: in [0, 1]
  TensorView values;   ///< per_head: float32 [batch, heads_q], any strides, 0 allowed

  static Lambda none() { return {}; }  ///< the dense kernel
  /// 0 never skips and gives the dense kernel's bits.
  static Lambda scalar(float lambda) { return {Kind::scalar, lambda, {}}; }
  static Lambda per_head(const TensorView& lambdas) { return {Kind::per_head, 0.0F, lambdas}; }
};

/// λ = factor / context length, the law of the published calibration, capped at 1.
struct CappedLambda {
  float lambda;
  bool capped;  ///< the factor exceeds the context length: λ was cut to 1
};
/// Throws InvalidArgument unless factor is finite and >= 0 and context_length > 0. Thread-safe.
LONGHAUL_API CappedLambda lambda_from_scale_factor(double factor, int64_t context_length);

/// The unit of skipping. Tiles, blocks and groups sit at absolute positions of the sequence.
struct Geometry {
  int tile_keys;   ///< keys whose maximum joins the reference before their blocks are tested
  int block_keys;  ///< keys dropped or kept together
  int group_rows;  ///< query positions that vote together, of one query head; 0 in decode: all query tokens of a
                   ///< request and all query heads of the KV head
};

/// Everything prefill() and decode() read. A plain struct; the caller owns all memory. Results (output, lse, counters,
/// skip_mask, probe_skipped) and workspace must overlap neither an input nor each other: other threads still read the
/// inputs while a result is written. output or lse over query, key or value is an InvalidArgument; the rest is not
/// checked.
struct AttentionArgs {
  TensorView query;   ///< [total_q, heads_q, d]: float32, float16, bfloat16, float8_e4m3; last dimension contiguous
  TensorView key;     ///< ragged [total_kv, heads_kv, d] or paged [pages, page_size, heads_kv, d], any stride order,
                      ///< last dimension contiguous; dtype of query, or float8_e4m3 beside a wider query
  TensorView value;   ///< as key, with dv
  TensorView output;  ///< [total_q, heads_q, dv]: dtype of query; float32, float16 or bfloat16 where query is fp8
  TensorView lse;     ///< optional float32 [heads_q, total_q]: natural log-sum-exp, -inf for a row that sees nothing

  TensorView cu_seqlens_q;   ///< int32 [batch + 1], from 0 to total_q, not decreasing
  TensorView cu_seqlens_kv;  ///< ragged only: int32 [batch + 1]
  TensorView page_table;     ///< paged only: int32 [batch, max_pages]
  TensorView kv_lengths;     ///< paged only: int32 [batch], tokens of each request in the cache, this chunk included

  float softmax_scale = 0.0F;  ///< 0: 1/sqrt(d)
  bool causal = true;          ///< bottom-right aligned: query i of n sees keys j <= kv_length - n + i
  int64_t window_left = -1;    ///< >= 0: a query at position p sees keys j >= p - window_left; -1: all
  float soft_cap = 0.0F;       ///< > 0: scores become soft_cap * tanh(score / soft_cap)
  TensorView sinks;            ///< optional float32 [heads_q]: a logit per head that joins the softmax sum only

  TensorView query_scale;  ///< fp8 only: float32 [1] or [heads_q], multiplies the stored query; not given: 1
  TensorView key_scale;    ///< fp8 only: float32 [1] or [heads_kv]
  TensorView value_scale;  ///< fp8 only: float32 [1] or [heads_kv]

  Lambda lambda;
  SkipRule rule = SkipRule::max;

  /// Optional int64 [voting_heads, 4], added to: visible scores, skipped scores, V bytes not read, K bytes not read.
  /// Voting heads are query heads in prefill and KV heads in decode.
  TensorView counters;
  /// Optional uint8 [voting_heads, groups, blocks] (skip_mask_shape), overwritten: 0 not visited, 1 computed, 2
  /// skipped.
  TensorView skip_mask;
  /// Optional, for calibration, with lambda none: float32 [n], n <= 32, ascending, in (0, 1]. The call computes the
  /// dense result and adds to probe_skipped, int64 [voting_heads, n], the scores that each lambda would have skipped.
  TensorView probe_lambdas;
  TensorView probe_skipped;

  bool batch_invariant = false;  ///< decode: split the keys by length alone, so that a request's bits do not depend on
                                 ///< what else is in the batch
  int threads = 0;               ///< 0: LONGHAUL_THREADS, or all cores. Never changes the bits.
  void* workspace = nullptr;     ///< at least attention_workspace_bytes(), aligned to 64 bytes (CUDA: 256)
  size_t workspace_bytes = 0;
  void* stream = nullptr;  ///< CUDA tensors only
};

/// Bytes of workspace the call needs. Prefill: independent of the sequence lengths. Thread-safe.
LONGHAUL_API size_t attention_workspace_bytes(const AttentionArgs& args, Phase phase);

/// The unit of skipping the call would use. Thread-safe.
LONGHAUL_API Geometry attention_geometry(const AttentionArgs& args, Phase phase);

struct SkipMaskShape {
  int64_t voting_heads, groups, blocks;
};
/// Groups run over the requests in order. Prefill: group g of a request covers the absolute positions
/// [group_rows*(first/group_rows + g), ...), first = kv_length - query_length. Decode: one group a request.
/// Thread-safe.
LONGHAUL_API SkipMaskShape skip_mask_shape(const AttentionArgs& args, Phase phase);

/// Any number of query tokens per request; made for many. Thread-safe: calls may run at once when their results and
/// workspaces do not overlap. Throws InvalidArgument, Unsupported or System before any result is written.
LONGHAUL_API void prefill(const AttentionArgs& args);

/// 1 to 16 query tokens per request on a long cache; splits the keys where there are too few heads. Thread-safe
/// likewise.
LONGHAUL_API void decode(const AttentionArgs& args);

/// Runs prefill() or decode(). Thread-safe likewise.
LONGHAUL_API void attention(const AttentionArgs& args, Phase phase);

}  // namespace longhaul
