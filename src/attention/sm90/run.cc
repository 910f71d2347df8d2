#include "attention/sm90/run.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "attention/mask_layout.h"
#include "attention/sm90/decode/decode.h"
#include "attention/sm90/device.h"
#include "attention/sm90/prefill/prefill.h"
#include "attention/sm90/status.h"
#include "core/cuda/check.h"
#include "core/cuda/devices.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

// Costs well under a microsecond, and saves the caller a CUDA context that an illegal access would end.
void check_pointer(const void* data, const char* name, int device) {
  if (data == nullptr) return;
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered)
    throw InvalidArgument(fmt::format("{} is at address {}, which is no memory of a CUDA device", name, data));
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device)
    throw InvalidArgument(
        fmt::format("{} is memory of CUDA device {}, but the current device is {}", name, attributes.device, device));
}

std::vector<int32_t> host_copy(const int32_t* data, int64_t count, cudaStream_t stream) {
  std::vector<int32_t> copy(static_cast<size_t>(count));
  check_cuda(cudaMemcpyAsync(copy.data(), data, copy.size() * sizeof(int32_t), cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  return copy;
}

}  // namespace

void require_sm90() {
  const CudaDevices& all = cuda_devices();
  if (all.devices.empty())
    throw Unsupported(fmt::format("query is on a CUDA device, but this machine has none: {}", all.why_none));
  const int index = current_cuda_device();
  for (const CudaDevice& device : all.devices) {
    if (device.index != index) continue;
    if (const std::string refusal = sm90_refusal(device.major, device.minor); !refusal.empty())
      throw Unsupported(fmt::format("CUDA device {} ({}) has {}", index, device.name, refusal));
    return;
  }
  throw Unsupported(fmt::format("CUDA device {} could not be asked what it is: {}", index, all.why_none));
}

size_t sm90_workspace_bytes(const AttentionParams& p, Phase phase) {
  require_sm90();
  sm90_status_word();  // allocated here, so that the first launch does not
  return phase == Phase::prefill ? sm90_prefill_workspace_bytes(p) : sm90_decode_workspace_bytes(p);
}

Geometry sm90_geometry(Phase phase) {
  require_sm90();
  return phase == Phase::prefill ? kSm90Prefill : kSm90Decode;
}

SkipMaskShape sm90_mask_shape(const AttentionParams& p, Phase phase) {
  require_sm90();
  auto* stream = static_cast<cudaStream_t>(p.stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone)
    throw InvalidArgument("stream is capturing, but skip_mask_shape must read the lengths: call it before");
  const std::vector<int32_t> q = host_copy(p.cu_q, p.batch + 1, stream);
  const bool paged = p.page_size > 0;
  const std::vector<int32_t> kv = host_copy(paged ? p.kv_lengths : p.cu_kv, paged ? p.batch : p.batch + 1, stream);
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  AttentionParams host = p;
  host.cu_q = q.data();
  (paged ? host.kv_lengths : host.cu_kv) = kv.data();
  for (int b = 0; b < p.batch; ++b) {
    for (const auto& [name, length] : {std::pair{"cu_seqlens_q", host.q_length(b)},
                                       std::pair{paged ? "kv_lengths" : "cu_seqlens_kv", host.kv_length(b)}})
      if (length < 0)
        throw InvalidArgument(
            fmt::format("{} gives request {} {} tokens, but there must be 0 or more", name, b, length));
  }
  return mask_shape(host, phase, sm90_geometry(phase));
}

void sm90_attention(const AttentionParams& checked, Phase phase) {
  require_sm90();
  AttentionParams p = checked;
  // The dense kernel counts nothing; lambda 0 gives its bits.
  if (p.lambda_kind == Lambda::Kind::none && (p.counters != nullptr || p.skip_mask != nullptr)) {
    p.lambda_kind = Lambda::Kind::scalar;
    p.lambda = 0;
  }
  if (p.kv_rows == 0) p.k = p.v = p.q;  // may be null, which no copy engine takes; nothing is read there
  const int device = current_cuda_device();
  for (const auto& [name, data] : {std::pair<const char*, const void*>{"query", p.q},
                                   {"key", p.k},
                                   {"value", p.v},
                                   {"output", p.out},
                                   {"lse", p.lse},
                                   {"cu_seqlens_q", p.cu_q},
                                   {"cu_seqlens_kv", p.cu_kv},
                                   {"page_table", p.page_table},
                                   {"kv_lengths", p.kv_lengths},
                                   {"sinks", p.sinks},
                                   {"lambda.values", p.lambdas},
                                   {"counters", p.counters},
                                   {"skip_mask", p.skip_mask},
                                   {"workspace", p.workspace}})
    check_pointer(data, name, device);
  report_sm90_status();
  if (phase == Phase::prefill) {
    sm90_prefill(p);
  } else {
    sm90_decode(p);
  }
}

}  // namespace longhaul
