/* The stable C interface over the C++ one (longhaul/attention.h explains every option; the fields mirror it).
 *
 * Status: every function that can fail returns an lh_status and leaves the text in lh_last_error(). No exception leaves
 * the library. Unless it says otherwise, a function is thread-safe: calls may overlap when their outputs do not.
 *
 * Growing: structures whose first field is struct_size may gain fields at their end, for which 0 means what was before.
 * Set struct_size through the init function, with the sizeof of the header you compiled with. Everything else is fixed
 * for one LH_ABI_VERSION. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "longhaul/export.h"
#include "longhaul/version.h"

#ifdef __cplusplus
#define LH_NOEXCEPT noexcept
extern "C" {
#else
#define LH_NOEXCEPT
#endif

#define LH_ABI_VERSION 1
#define LH_MAX_RANK 4

typedef int32_t lh_status;
enum {
  LH_OK = 0,
  LH_INVALID_ARGUMENT = 1, /* a value the caller can correct */
  LH_UNSUPPORTED = 2,      /* valid, but this build, device or kernel cannot do it */
  LH_TIMEOUT = 3,          /* a wait reached its deadline */
  LH_PEER_LOST = 4,        /* another rank died or stopped answering */
  LH_SYSTEM = 5            /* the operating system refused: memory, files, devices */
};

typedef int32_t lh_dtype;
enum { LH_FLOAT32 = 0, LH_FLOAT16 = 1, LH_BFLOAT16 = 2, LH_FLOAT8_E4M3 = 3, LH_INT32 = 4, LH_INT64 = 5, LH_UINT8 = 6 };

enum { LH_CPU = 0, LH_CUDA = 1 };                                          /* lh_tensor.device */
enum { LH_PREFILL = 0, LH_DECODE = 1 };                                    /* phase */
enum { LH_RULE_MAX = 0, LH_RULE_SUM = 1 };                                 /* lh_attention_args.rule */
enum { LH_LAMBDA_NONE = 0, LH_LAMBDA_SCALAR = 1, LH_LAMBDA_PER_HEAD = 2 }; /* lh_attention_args.lambda_kind */
enum { LH_NEWEST_FIRST = 0, LH_ASCENDING = 1 };                            /* lh_reference_args.order */

/* A view of the caller's memory; all zero: not given. Strides count elements. */
typedef struct lh_tensor {
  void* data;
  lh_dtype dtype;
  int32_t device;
  int32_t rank;
  int32_t reserved; /* 0 */
  int64_t shape[LH_MAX_RANK];
  int64_t stride[LH_MAX_RANK];
} lh_tensor;

typedef struct lh_attention_args {
  size_t struct_size;

  lh_tensor query;  /* [total_q, heads_q, d] */
  lh_tensor key;    /* ragged [total_kv, heads_kv, d] or paged [pages, page_size, heads_kv, d] */
  lh_tensor value;  /* as key, with dv */
  lh_tensor output; /* [total_q, heads_q, dv] */
  lh_tensor lse;    /* optional float32 [heads_q, total_q] */

  lh_tensor cu_seqlens_q;  /* int32 [batch + 1] */
  lh_tensor cu_seqlens_kv; /* ragged only: int32 [batch + 1] */
  lh_tensor page_table;    /* paged only: int32 [batch, max_pages] */
  lh_tensor kv_lengths;    /* paged only: int32 [batch] */

  float softmax_scale; /* 0: 1/sqrt(d) */
  int32_t causal;      /* 0 or 1; 1 after init */
  int64_t window_left; /* -1 (all, after init), or >= 0 */
  float soft_cap;      /* 0: none */
  int32_t rule;        /* LH_RULE_* */
  lh_tensor sinks;     /* optional float32 [heads_q] */

  lh_tensor query_scale; /* fp8 only: float32 [1] or [heads_q] */
  lh_tensor key_scale;   /* fp8 only: float32 [1] or [heads_kv] */
  lh_tensor value_scale; /* fp8 only: float32 [1] or [heads_kv] */

  int32_t lambda_kind;     /* LH_LAMBDA_* */
  float lambda_value;      /* scalar: in [0, 1] */
  lh_tensor lambda_values; /* per head: float32 [batch, heads_q] */

  lh_tensor counters;      /* optional int64 [voting_heads, 4], added to */
  lh_tensor skip_mask;     /* optional uint8 [voting_heads, groups, blocks] */
  lh_tensor probe_lambdas; /* optional float32 [n] */
  lh_tensor probe_skipped; /* int64 [voting_heads, n], added to */

  int32_t batch_invariant; /* 0 or 1 */
  int32_t threads;         /* 0: LONGHAUL_THREADS, or all cores */
  void* workspace;         /* aligned to 64 bytes */
  size_t workspace_bytes;
  void* stream; /* CUDA tensors only */
} lh_attention_args;

typedef struct lh_geometry {
  int32_t tile_keys;
  int32_t block_keys;
  int32_t group_rows;
} lh_geometry;

typedef struct lh_mask_shape {
  int64_t voting_heads;
  int64_t groups;
  int64_t blocks;
} lh_mask_shape;

/* LH_ABI_VERSION of the loaded library; it must equal that of the header. */
LONGHAUL_API int32_t lh_abi_version(void) LH_NOEXCEPT;
/* "major.minor.patch" of the loaded library. */
LONGHAUL_API const char* lh_version(void) LH_NOEXCEPT;
/* One sentence about the calling thread's last call that failed; "" before. Valid until its next failing call. */
LONGHAUL_API const char* lh_last_error(void) LH_NOEXCEPT;
/* "invalid_argument" and so on; "unknown" for a number that is no lh_status. */
LONGHAUL_API const char* lh_status_name(lh_status status) LH_NOEXCEPT;

/* The defaults: no tensor given, causal, no window, lambda none. struct_size is sizeof(lh_attention_args). */
LONGHAUL_API lh_status lh_attention_args_init(lh_attention_args* args, size_t struct_size) LH_NOEXCEPT;
LONGHAUL_API lh_status lh_attention_workspace_bytes(const lh_attention_args* args, int32_t phase,
                                                    size_t* bytes) LH_NOEXCEPT;
LONGHAUL_API lh_status lh_attention_geometry(const lh_attention_args* args, int32_t phase,
                                             lh_geometry* geometry) LH_NOEXCEPT;
LONGHAUL_API lh_status lh_skip_mask_shape(const lh_attention_args* args, int32_t phase,
                                          lh_mask_shape* shape) LH_NOEXCEPT;
/* On an error no result has been written. Results and workspace must overlap neither an input nor each other. */
LONGHAUL_API lh_status lh_prefill(const lh_attention_args* args) LH_NOEXCEPT;
LONGHAUL_API lh_status lh_decode(const lh_attention_args* args) LH_NOEXCEPT;

/* lambda = factor / context_length, at most 1; *capped tells whether it was cut (may be NULL). */
LONGHAUL_API lh_status lh_lambda_from_scale_factor(double factor, int64_t context_length, float* lambda,
                                                   int32_t* capped) LH_NOEXCEPT;

/* The oracle: double precision, slow. Outputs are optional (NULL) and row-major; a count must be the exact number of
 * elements. */
typedef struct lh_reference_args {
  size_t struct_size;
  int32_t phase;
  int32_t order;        /* LH_NEWEST_FIRST or LH_ASCENDING */
  lh_geometry geometry; /* all 0: that of the kernels for this phase */
  int32_t one_part;     /* decode: 0 follows the kernels' key splits, 1 does not split */
  double* output;       /* [total_q, heads_q, dv] */
  size_t output_count;
  double* lse; /* [heads_q, total_q] */
  size_t lse_count;
  double* dropped_mass; /* [heads_q, total_q]: share of the dense softmax that the skipped blocks held */
  size_t dropped_mass_count;
  int64_t* counters; /* [voting_heads, 4] */
  size_t counters_count;
  uint8_t* skip_mask; /* of mask_shape */
  size_t skip_mask_count;
  lh_mask_shape mask_shape; /* written */
} lh_reference_args;

/* All zero but struct_size. */
LONGHAUL_API lh_status lh_reference_args_init(lh_reference_args* reference, size_t struct_size) LH_NOEXCEPT;
/* Reads the inputs, lambda and rule of args; its outputs, workspace and threads may be absent. */
LONGHAUL_API lh_status lh_reference_attention(const lh_attention_args* args, lh_reference_args* reference) LH_NOEXCEPT;

/* Floating-point arrays, each element rounded once, to nearest even. The arrays must not overlap. */
LONGHAUL_API lh_status lh_convert(const void* source, lh_dtype source_dtype, void* target, lh_dtype target_dtype,
                                  size_t count) LH_NOEXCEPT;

/* The instruction set that the CPU kernels use: "portable", "avx2" or "avx512". */
LONGHAUL_API lh_status lh_isa(const char** name) LH_NOEXCEPT;
/* Threads of a call that does not say how many. */
LONGHAUL_API lh_status lh_default_threads(int32_t* threads) LH_NOEXCEPT;

#ifdef __cplusplus
}
#endif
