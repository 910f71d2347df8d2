#include "attention/sm90/prefill/prepare.cuh"
#include "attention/sm90/prefill/work.cuh"
#include "attention/sm90/status.h"

namespace longhaul::sm90 {
namespace {

/// Whether the lengths of request b lie within the tensors.
__device__ bool lengths_fit(const PrefillKernelParams& p, int b) {
  const int64_t q_begin = p.cu_q[b], q_end = p.cu_q[b + 1];
  bool fit = q_begin >= 0 && q_begin <= q_end && q_end <= p.total_q;
  if (b == 0) fit = fit && q_begin == 0;
  if (b == p.batch - 1) fit = fit && q_end == p.total_q;
  if (p.page_size > 0) {
    const int64_t length = p.kv_lengths[b];
    return fit && length >= 0 && length <= int64_t{p.page_size} * p.max_pages;
  }
  const int64_t begin = p.cu_kv[b], end = p.cu_kv[b + 1];
  fit = fit && begin >= 0 && begin <= end && end <= p.kv_rows;
  if (b == 0) fit = fit && begin == 0;
  return fit && (b < p.batch - 1 || end == p.kv_rows);
}

__device__ bool lambdas_in_range(const PrefillKernelParams& p, int thread) {
  if (p.lambdas == nullptr) return true;
  for (int64_t i = thread; i < int64_t{p.batch} * p.heads_q; i += kPrepareThreads) {
    const float lambda = p.lambdas[i / p.heads_q * p.lambda_request + i % p.heads_q * p.lambda_head];
    if (!(lambda >= 0 && lambda <= 1)) return false;
  }
  return true;
}

/// Exclusive prefix sum of one number a thread; `total` gets the sum. `shared` holds kPrepareThreads numbers.
__device__ int scan(int value, int* shared, int& total) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int step = 1; step < kPrepareThreads; step *= 2) {
    const int other = thread >= step ? shared[thread - step] : 0;
    __syncthreads();
    shared[thread] += other;
    __syncthreads();
  }
  total = shared[kPrepareThreads - 1];
  const int before = shared[thread] - value;
  __syncthreads();
  return before;
}

/// Place of request b in the work list: before it come the longer ones, and of equal ones those of lower index.
__device__ int rank_of(const PrefillKernelParams& p, const int* lengths, int b) {
  if (p.batch > kSortedRequests) return b;
  int rank = 0;
  for (int other = 0; other < p.batch; ++other)
    rank += lengths[other] > lengths[b] || (lengths[other] == lengths[b] && other < b);
  return rank;
}

__global__ void __launch_bounds__(kPrepareThreads) prepare(const __grid_constant__ PrefillKernelParams p) {
  __shared__ int lengths[kSortedRequests], sums[kPrepareThreads];
  const int thread = static_cast<int>(threadIdx.x);
  bool fit = true;
  for (int b = thread; b < p.batch; b += kPrepareThreads) {
    fit = fit && lengths_fit(p, b);
    if (b < kSortedRequests) lengths[b] = request_shape(p, b).kv_length;
  }
  const bool lambdas_fit = __syncthreads_and(lambdas_in_range(p, thread));
  if (!lambdas_fit && thread == 0) set_status(p, kSm90LambdaOutOfRange);
  if (!__syncthreads_and(fit)) {
    if (thread == 0) {
      set_status(p, kSm90LengthsMalformed);
      *p.header = {};
    }
    return;
  }
  for (int b = thread; b < p.batch; b += kPrepareThreads) p.plan[rank_of(p, lengths, b)].request = b;
  __syncthreads();

  // Each thread counts a run of requests; one scan joins the runs.
  const int run = (p.batch + kPrepareThreads - 1) / kPrepareThreads;
  const int begin = min(thread * run, p.batch), end = min(begin + run, p.batch);
  int items = 0, groups = 0;
  for (int i = begin; i < end; ++i) {
    items += request_shape(p, p.plan[i].request).tiles() * (p.heads_q / p.ranks);
    groups += request_shape(p, i).groups();
  }
  int total_items, total_groups;
  int item = scan(items, sums, total_items), group = scan(groups, sums, total_groups);
  for (int i = begin; i < end; ++i) {
    p.plan[i].first_item = item;
    item += request_shape(p, p.plan[i].request).tiles() * (p.heads_q / p.ranks);
    p.group_base[i] = group;
    group += request_shape(p, i).groups();
  }
  if (thread == 0) {
    *p.header = {p.clusters, total_items};  // a cluster's first item has its own number
    if (p.skip_mask != nullptr && total_groups > p.mask_groups) set_status(p, kSm90MaskTooSmall);
  }
}

}  // namespace

cudaError_t launch_prepare(const PrefillKernelParams& p, cudaStream_t stream) {
  cudaLaunchConfig_t launch{};
  launch.gridDim = 1;
  launch.blockDim = kPrepareThreads;
  launch.stream = stream;
  return cudaLaunchKernelEx(&launch, prepare, p);  // not <<<>>>, whose error may be an older one of somebody else
}

}  // namespace longhaul::sm90
