// The public entry points: check, choose, run.
#include "longhaul/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/cpu/run.h"
#include "attention/cpu/workspace.h"
#include "attention/mask_layout.h"
#include "attention/params.h"
#include "attention/sm90/run.h"
#include "attention/tile_plan.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr size_t kCudaWorkspaceAlignment = 256;  // that of cudaMalloc

Geometry cpu_geometry(Phase phase) { return phase == Phase::prefill ? kCpuPrefill : kCpuDecode; }

size_t workspace_bytes(const AttentionParams& p, Phase phase) {
  if (p.device == Device::cuda) return sm90_workspace_bytes(p, phase);
  AttentionParams counting = p;
  counting.workspace = nullptr;
  return phase == Phase::prefill ? cpu_prefill_workspace_bytes(counting) : cpu_decode_workspace_bytes(counting);
}

void check_workspace(const AttentionArgs& args, const AttentionParams& p, Phase phase) {
  const size_t needed = workspace_bytes(p, phase);
  if (args.workspace == nullptr) {
    throw InvalidArgument(
        fmt::format("workspace is null, but this call needs {} bytes (attention_workspace_bytes)", needed));
  }
  const size_t alignment = p.device == Device::cuda ? kCudaWorkspaceAlignment : kWorkspaceAlignment;
  if (reinterpret_cast<uintptr_t>(args.workspace) % alignment != 0) {
    throw InvalidArgument(
        fmt::format("workspace is at address {}, but it must be aligned to {} bytes", args.workspace, alignment));
  }
  if (args.workspace_bytes < needed) {
    throw InvalidArgument(fmt::format("workspace_bytes is {}, but this call needs {} (attention_workspace_bytes)",
                                      args.workspace_bytes, needed));
  }
}

}  // namespace

CappedLambda lambda_from_scale_factor(double factor, int64_t context_length) {
  if (!(std::isfinite(factor) && factor >= 0)) {
    throw InvalidArgument(fmt::format("factor is {}, but it must be finite and not negative", factor));
  }
  if (context_length <= 0) {
    throw InvalidArgument(fmt::format("context_length is {}, but it must be positive", context_length));
  }
  const double lambda = factor / static_cast<double>(context_length);
  return {static_cast<float>(std::min(lambda, 1.0)), lambda > 1.0};
}

size_t attention_workspace_bytes(const AttentionArgs& args, Phase phase) {
  return workspace_bytes(make_params(args, phase), phase);
}

Geometry attention_geometry(const AttentionArgs& args, Phase phase) {
  const AttentionParams p = make_params(args, phase);
  return p.device == Device::cuda ? sm90_geometry(phase) : cpu_geometry(phase);
}

SkipMaskShape skip_mask_shape(const AttentionArgs& args, Phase phase) {
  const AttentionParams p = make_params(args, phase);
  return p.device == Device::cuda ? sm90_mask_shape(p, phase) : mask_shape(p, phase, cpu_geometry(phase));
}

void attention(const AttentionArgs& args, Phase phase) {
  AttentionParams p = make_params(args, phase);
  check_workspace(args, p, phase);
  p.workspace = args.workspace;
  if (p.device == Device::cuda) return sm90_attention(p, phase);
  if (phase == Phase::prefill) {
    cpu_prefill(p);
  } else {
    cpu_decode(p);
  }
}

void prefill(const AttentionArgs& args) { attention(args, Phase::prefill); }
void decode(const AttentionArgs& args) { attention(args, Phase::decode); }

}  // namespace longhaul
