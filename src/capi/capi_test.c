/* The C interface from C11: layout, status codes, growing structures, and results against the oracle. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "longhaul/longhaul.h"

static int failures = 0;

#define EXPECT(condition)                                                                                        \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      ++failures;                                                                                                \
      fprintf(stderr, "%s:%d: not true: %s; last error: %s\n", __FILE__, __LINE__, #condition, lh_last_error()); \
    }                                                                                                            \
  } while (0)

/* `call` fails with `status` and a message that contains `text`. */
#define EXPECT_FAILURE(call, status, text)                                                                         \
  do {                                                                                                             \
    lh_status got = (call);                                                                                        \
    if (got != (status) || strstr(lh_last_error(), (text)) == NULL) {                                              \
      ++failures;                                                                                                  \
      fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call, lh_status_name(got), lh_last_error()); \
    }                                                                                                              \
  } while (0)

enum { kRequests = 2, kHeadsQ = 4, kHeadsKv = 2, kHead = 64, kTotalQ = 6, kTotalKv = 230 };

typedef struct Problem {
  float query[kTotalQ * kHeadsQ * kHead];
  float key[kTotalKv * kHeadsKv * kHead];
  float value[kTotalKv * kHeadsKv * kHead];
  float output[kTotalQ * kHeadsQ * kHead];
  float lse[kHeadsQ * kTotalQ];
  int64_t counters[kHeadsQ * 4];
  int32_t cu_q[kRequests + 1];
  int32_t cu_kv[kRequests + 1];
  lh_attention_args args;
} Problem;

static lh_tensor tensor(void* data, lh_dtype dtype, int rank, const int64_t* shape) {
  lh_tensor result;
  int64_t step = 1;
  memset(&result, 0, sizeof(result));
  result.data = data;
  result.dtype = dtype;
  result.rank = rank;
  for (int i = rank - 1; i >= 0; --i) {
    result.shape[i] = shape[i];
    result.stride[i] = step;
    step *= shape[i];
  }
  return result;
}

static void fill(float* values, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    values[i] = (float)(seed >> 8) / 8388608.0F - 1.0F;
  }
}

static Problem* make_problem(void) {
  const int64_t q_shape[3] = {kTotalQ, kHeadsQ, kHead};
  const int64_t kv_shape[3] = {kTotalKv, kHeadsKv, kHead};
  const int64_t lse_shape[2] = {kHeadsQ, kTotalQ};
  const int64_t counters_shape[2] = {kHeadsQ, 4};
  const int64_t cu_shape[1] = {kRequests + 1};
  const int32_t cu_q[kRequests + 1] = {0, 2, kTotalQ};
  const int32_t cu_kv[kRequests + 1] = {0, 100, kTotalKv};
  Problem* p = calloc(1, sizeof(Problem));
  if (p == NULL) {
    abort();
  }
  fill(p->query, kTotalQ * kHeadsQ * kHead, 1);
  fill(p->key, kTotalKv * kHeadsKv * kHead, 2);
  fill(p->value, kTotalKv * kHeadsKv * kHead, 3);
  memcpy(p->cu_q, cu_q, sizeof(cu_q));
  memcpy(p->cu_kv, cu_kv, sizeof(cu_kv));
  EXPECT(lh_attention_args_init(&p->args, sizeof(p->args)) == LH_OK);
  p->args.query = tensor(p->query, LH_FLOAT32, 3, q_shape);
  p->args.key = tensor(p->key, LH_FLOAT32, 3, kv_shape);
  p->args.value = tensor(p->value, LH_FLOAT32, 3, kv_shape);
  p->args.output = tensor(p->output, LH_FLOAT32, 3, q_shape);
  p->args.lse = tensor(p->lse, LH_FLOAT32, 2, lse_shape);
  p->args.counters = tensor(p->counters, LH_INT64, 2, counters_shape);
  p->args.cu_seqlens_q = tensor(p->cu_q, LH_INT32, 1, cu_shape);
  p->args.cu_seqlens_kv = tensor(p->cu_kv, LH_INT32, 1, cu_shape);
  p->args.softmax_scale = 1.0F;
  return p;
}

static void free_problem(Problem* p) {
  free(p->args.workspace);
  free(p);
}

static void provide_workspace(Problem* p, int32_t phase) {
  EXPECT(lh_attention_workspace_bytes(&p->args, phase, &p->args.workspace_bytes) == LH_OK);
  free(p->args.workspace);
  p->args.workspace = aligned_alloc(64, (p->args.workspace_bytes + 64) / 64 * 64);
}

static void test_library(void) {
  const char* isa = NULL;
  int32_t threads = 0;
  EXPECT(lh_abi_version() == LH_ABI_VERSION);
  EXPECT(strcmp(lh_version(), LONGHAUL_VERSION) == 0);
  EXPECT(strcmp(lh_status_name(LH_PEER_LOST), "peer_lost") == 0 && strcmp(lh_status_name(99), "unknown") == 0);
  EXPECT(lh_isa(&isa) == LH_OK && isa != NULL && strlen(isa) > 0);
  EXPECT(lh_default_threads(&threads) == LH_OK && threads >= 1);
  EXPECT_FAILURE(lh_isa(NULL), LH_INVALID_ARGUMENT, "name is NULL");
  EXPECT(sizeof(lh_tensor) == 88); /* fixed for one LH_ABI_VERSION */
}

static void test_lambda(void) {
  float lambda = 0;
  int32_t capped = -1;
  EXPECT(lh_lambda_from_scale_factor(512.0, 1024, &lambda, &capped) == LH_OK && lambda == 0.5F && capped == 0);
  EXPECT(lh_lambda_from_scale_factor(2048.0, 1024, &lambda, &capped) == LH_OK && lambda == 1.0F && capped == 1);
  EXPECT(lh_lambda_from_scale_factor(2048.0, 1024, &lambda, NULL) == LH_OK);
  EXPECT(lh_lambda_from_scale_factor(-1.0, 1024, &lambda, NULL) == LH_INVALID_ARGUMENT);
}

static void test_convert(void) {
  const float values[3] = {1.0F, -2.5F, 1.00390625F}; /* the last: halfway between two bfloat16 */
  uint16_t bf16[3] = {0, 0, 0};
  uint8_t f8[3] = {0, 0, 0};
  float back[3] = {0, 0, 0};
  EXPECT(lh_convert(values, LH_FLOAT32, bf16, LH_BFLOAT16, 3) == LH_OK);
  EXPECT(bf16[0] == 0x3f80 && bf16[1] == 0xc020 && bf16[2] == 0x3f80);
  EXPECT(lh_convert(bf16, LH_BFLOAT16, f8, LH_FLOAT8_E4M3, 3) == LH_OK);
  EXPECT(lh_convert(f8, LH_FLOAT8_E4M3, back, LH_FLOAT32, 3) == LH_OK);
  EXPECT(back[0] == 1.0F && back[1] == -2.5F && back[2] == 1.0F);
  EXPECT(lh_convert(NULL, LH_FLOAT32, NULL, LH_FLOAT16, 0) == LH_OK);
  EXPECT_FAILURE(lh_convert(NULL, LH_FLOAT32, bf16, LH_FLOAT16, 1), LH_INVALID_ARGUMENT, "source is NULL");
  EXPECT_FAILURE(lh_convert(values, LH_INT32, bf16, LH_FLOAT16, 1), LH_INVALID_ARGUMENT, "source_dtype is 4");
  EXPECT_FAILURE(lh_convert(values, LH_FLOAT32, bf16, 77, 1), LH_INVALID_ARGUMENT, "target_dtype is 77");
  EXPECT_FAILURE(lh_convert(values, LH_FLOAT32, bf16, LH_BFLOAT16, SIZE_MAX), LH_INVALID_ARGUMENT, "count is 1844");
  EXPECT_FAILURE(lh_convert(bf16, LH_BFLOAT16, back, LH_FLOAT32, SIZE_MAX / 8 + 1), LH_INVALID_ARGUMENT, "at most");

  /* More elements than one internal chunk, each in its place. */
  enum { kMany = 5000 };
  float* many = malloc(kMany * sizeof(float));
  uint16_t* half = malloc(kMany * sizeof(uint16_t));
  for (int i = 0; i < kMany; ++i) {
    many[i] = (float)(i % 2048);
  }
  EXPECT(lh_convert(many, LH_FLOAT32, half, LH_FLOAT16, kMany) == LH_OK);
  memset(many, 0, kMany * sizeof(float));
  EXPECT(lh_convert(half, LH_FLOAT16, many, LH_FLOAT32, kMany) == LH_OK);
  int wrong = 0;
  for (int i = 0; i < kMany; ++i) {
    wrong += many[i] != (float)(i % 2048);
  }
  EXPECT(wrong == 0);
  free(half);
  free(many);
}

static void test_growing_structures(void) {
  struct {
    lh_attention_args args;
    unsigned char newer[16];
  } larger;
  Problem* p = make_problem();
  size_t bytes = 0;
  EXPECT_FAILURE(lh_attention_args_init(&larger.args, 8), LH_INVALID_ARGUMENT, "struct_size is 8");
  EXPECT_FAILURE(lh_attention_args_init(NULL, sizeof(lh_attention_args)), LH_INVALID_ARGUMENT, "args is NULL");
  memset(&larger, 0xff, sizeof(larger));
  EXPECT(lh_attention_args_init(&larger.args, sizeof(larger)) == LH_OK);
  EXPECT(larger.newer[0] == 0 && larger.newer[15] == 0);
  memcpy(&larger.args, &p->args, sizeof(p->args));
  larger.args.struct_size = sizeof(larger);
  EXPECT(lh_attention_workspace_bytes(&larger.args, LH_PREFILL, &bytes) == LH_OK);
  larger.newer[15] = 1;
  EXPECT_FAILURE(lh_attention_workspace_bytes(&larger.args, LH_PREFILL, &bytes), LH_UNSUPPORTED, "does not know");
  p->args.struct_size = 0;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "args->struct_size is 0");
  EXPECT_FAILURE(lh_attention_args_init(&p->args, SIZE_MAX), LH_INVALID_ARGUMENT, "from ");
  p->args.struct_size = SIZE_MAX - 7;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "it must be at most 65536");
  EXPECT_FAILURE(lh_prefill(NULL), LH_INVALID_ARGUMENT, "args is NULL");
  free_problem(p);
}

static void test_wrong_values(void) {
  Problem* p = make_problem();
  size_t bytes = 0;
  EXPECT_FAILURE(lh_attention_workspace_bytes(&p->args, 2, &bytes), LH_INVALID_ARGUMENT, "phase is 2");
  EXPECT_FAILURE(lh_attention_workspace_bytes(&p->args, LH_PREFILL, NULL), LH_INVALID_ARGUMENT, "bytes is NULL");
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "workspace");
  p->args.causal = 2;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "causal is 2");
  p->args.causal = 1;
  p->args.rule = -1;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "rule is -1");
  p->args.rule = LH_RULE_MAX;
  p->args.lambda_kind = 3;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "lambda_kind is 3");
  p->args.lambda_kind = LH_LAMBDA_SCALAR;
  p->args.lambda_value = 1.5F;
  EXPECT_FAILURE(lh_attention_workspace_bytes(&p->args, LH_PREFILL, &bytes), LH_INVALID_ARGUMENT, "1.5");
  p->args.lambda_kind = LH_LAMBDA_NONE;
  p->args.lambda_value = 0;
  p->args.key.reserved = 5;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "key.reserved is 5");
  p->args.key.reserved = 0;
  p->args.key.rank = 9;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "key has rank 9");
  p->args.key.rank = 0;
  EXPECT_FAILURE(lh_prefill(&p->args), LH_INVALID_ARGUMENT, "key.rank is 0");
  free_problem(p);
}

static void compare_with_reference(Problem* p, int32_t phase) {
  enum { kOutputs = kTotalQ * kHeadsQ * kHead, kRows = kHeadsQ * kTotalQ };
  const size_t counters = (phase == LH_PREFILL ? kHeadsQ : kHeadsKv) * 4;
  double* output = malloc(kOutputs * sizeof(double));
  double lse[kRows];
  int64_t reference_counters[kHeadsQ * 4];
  lh_reference_args reference;
  int wrong = 0;
  EXPECT(lh_reference_args_init(&reference, sizeof(reference)) == LH_OK);
  reference.phase = phase;
  reference.output = output;
  reference.output_count = kOutputs;
  reference.lse = lse;
  reference.lse_count = kRows;
  reference.counters = reference_counters;
  reference.counters_count = counters;
  EXPECT(lh_reference_attention(&p->args, &reference) == LH_OK);
  /* Values below 1 in magnitude, float sums of 64 products and 130 keys: some dozen roundings of 2^-24. NaN is wrong.
   */
  for (int i = 0; i < kOutputs; ++i) {
    wrong += !(fabs(output[i] - (double)p->output[i]) < 1e-5);
  }
  for (int i = 0; i < kRows; ++i) {
    wrong += !(fabs(lse[i] - (double)p->lse[i]) < 1e-4);
  }
  EXPECT(wrong == 0);
  for (size_t i = 0; i < counters; i += 4) { /* visible and skipped scores; bytes depend on who shares a read */
    EXPECT(reference_counters[i] == p->counters[i] && reference_counters[i + 1] == p->counters[i + 1]);
  }
  EXPECT(reference.mask_shape.blocks > 0);
  reference.output_count = 1;
  EXPECT_FAILURE(lh_reference_attention(&p->args, &reference), LH_INVALID_ARGUMENT, "output_count is 1");
  reference.order = 2;
  EXPECT_FAILURE(lh_reference_attention(&p->args, &reference), LH_INVALID_ARGUMENT, "order is 2");
  free(output);
}

static void test_attention(int32_t phase) {
  Problem* p = make_problem();
  lh_geometry geometry = {0, 0, 0};
  lh_mask_shape mask = {0, 0, 0};
  int64_t skipped = 0;
  p->args.counters.shape[0] = phase == LH_PREFILL ? kHeadsQ : kHeadsKv;
  provide_workspace(p, phase);
  EXPECT((phase == LH_PREFILL ? lh_prefill(&p->args) : lh_decode(&p->args)) == LH_OK);
  compare_with_reference(p, phase);

  p->args.lambda_kind = LH_LAMBDA_SCALAR;
  p->args.lambda_value = 1.0F; /* every block below its row's maximum */
  memset(p->counters, 0, sizeof(p->counters));
  EXPECT((phase == LH_PREFILL ? lh_prefill(&p->args) : lh_decode(&p->args)) == LH_OK);
  compare_with_reference(p, phase);
  for (int head = 0; head < p->args.counters.shape[0]; ++head) {
    skipped += p->counters[head * 4 + 1];
  }
  EXPECT(skipped > 0);
  EXPECT(lh_attention_geometry(&p->args, phase, &geometry) == LH_OK && geometry.tile_keys >= geometry.block_keys);
  EXPECT(lh_skip_mask_shape(&p->args, phase, &mask) == LH_OK && mask.voting_heads == p->args.counters.shape[0]);
  EXPECT(mask.groups >= kRequests);
  free_problem(p);
}

static void* other_thread(void* unused) {
  EXPECT(strcmp(lh_last_error(), "") == 0);
  EXPECT_FAILURE(lh_default_threads(NULL), LH_INVALID_ARGUMENT, "threads is NULL");
  return unused;
}

static void test_errors_belong_to_their_thread(void) {
  pthread_t thread;
  EXPECT_FAILURE(lh_isa(NULL), LH_INVALID_ARGUMENT, "name is NULL");
  EXPECT(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
  EXPECT(strstr(lh_last_error(), "name is NULL") != NULL);
}

int main(void) {
  EXPECT(strcmp(lh_last_error(), "") == 0);
  test_library();
  test_lambda();
  test_convert();
  test_growing_structures();
  test_wrong_values();
  test_attention(LH_PREFILL);
  test_attention(LH_DECODE);
  test_errors_belong_to_their_thread();
  printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}
