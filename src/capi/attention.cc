#include "longhaul/attention.h"

#include "capi/arguments.h"
#include "capi/status.h"

using longhaul::capi::guarded;
using longhaul::capi::require_pointer;
using longhaul::capi::to_args;
using longhaul::capi::to_phase;

extern "C" {

lh_status lh_attention_args_init(lh_attention_args* args, size_t struct_size) noexcept {
  return guarded([&] {
    require_pointer(args, "args");
    // The size comes from the caller's header: the rest of a newer, larger structure is cleared as well.
    longhaul::capi::check_init_size("lh_attention_args", struct_size, longhaul::capi::kOldestAttentionArgs);
    std::memset(args, 0, struct_size);
    args->struct_size = struct_size;
    args->causal = 1;
    args->window_left = -1;
  });
}

lh_status lh_attention_workspace_bytes(const lh_attention_args* args, int32_t phase, size_t* bytes) noexcept {
  return guarded([&] {
    require_pointer(bytes, "bytes");
    *bytes = longhaul::attention_workspace_bytes(to_args(args), to_phase(phase));
  });
}

lh_status lh_attention_geometry(const lh_attention_args* args, int32_t phase, lh_geometry* geometry) noexcept {
  return guarded([&] {
    require_pointer(geometry, "geometry");
    const longhaul::Geometry result = longhaul::attention_geometry(to_args(args), to_phase(phase));
    *geometry = {result.tile_keys, result.block_keys, result.group_rows};
  });
}

lh_status lh_skip_mask_shape(const lh_attention_args* args, int32_t phase, lh_mask_shape* shape) noexcept {
  return guarded([&] {
    require_pointer(shape, "shape");
    const longhaul::SkipMaskShape result = longhaul::skip_mask_shape(to_args(args), to_phase(phase));
    *shape = {result.voting_heads, result.groups, result.blocks};
  });
}

lh_status lh_prefill(const lh_attention_args* args) noexcept {
  return guarded([&] { longhaul::prefill(to_args(args)); });
}

lh_status lh_decode(const lh_attention_args* args) noexcept {
  return guarded([&] { longhaul::decode(to_args(args)); });
}

lh_status lh_lambda_from_scale_factor(double factor, int64_t context_length, float* lambda, int32_t* capped) noexcept {
  return guarded([&] {
    require_pointer(lambda, "lambda");
    const longhaul::CappedLambda result = longhaul::lambda_from_scale_factor(factor, context_length);
    *lambda = result.lambda;
    if (capped != nullptr) {
      *capped = result.capped ? 1 : 0;
    }
  });
}

}  // extern "C"
