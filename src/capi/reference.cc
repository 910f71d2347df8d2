#include "attention/reference/reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/tile_plan.h"
#include "capi/arguments.h"
#include "capi/status.h"
#include "longhaul/error.h"

namespace longhaul::capi {
namespace {

static_assert(LH_NEWEST_FIRST == static_cast<int>(VisitOrder::newest_first));
static_assert(LH_ASCENDING == static_cast<int>(VisitOrder::ascending));

ReferenceOptions to_options(const lh_reference_args& c) {
  ReferenceOptions options;
  options.phase = to_phase(c.phase);
  check_enum(c.order, LH_ASCENDING, "order");
  options.order = static_cast<VisitOrder>(c.order);
  const bool default_geometry = c.geometry.tile_keys == 0 && c.geometry.block_keys == 0 && c.geometry.group_rows == 0;
  if (default_geometry) {
    options.geometry = options.phase == Phase::prefill ? kCpuPrefill : kCpuDecode;
  } else {
    options.geometry = {c.geometry.tile_keys, c.geometry.block_keys, c.geometry.group_rows};
  }
  options.kernel_splits = !to_bool(c.one_part, "one_part");
  options.measure_dropped_mass = c.dropped_mass != nullptr;
  return options;
}

template <class T>
void check_count(const std::vector<T>& result, const T* target, size_t count, const char* name) {
  if (target != nullptr && count != result.size()) {
    throw InvalidArgument(fmt::format("{}_count is {}, but {} has {} elements", name, count, name, result.size()));
  }
}

template <class T>
void copy_out(const std::vector<T>& result, T* target) {
  if (target != nullptr) {
    std::copy(result.begin(), result.end(), target);
  }
}

}  // namespace
}  // namespace longhaul::capi

extern "C" {

lh_status lh_reference_args_init(lh_reference_args* reference, size_t struct_size) noexcept {
  using namespace longhaul::capi;
  return guarded([&] {
    require_pointer(reference, "reference");
    check_init_size("lh_reference_args", struct_size, kOldestReferenceArgs);
    std::memset(reference, 0, struct_size);
    reference->struct_size = struct_size;
  });
}

lh_status lh_reference_attention(const lh_attention_args* args, lh_reference_args* reference) noexcept {
  using namespace longhaul::capi;
  return guarded([&] {
    require_pointer(reference, "reference");
    const lh_reference_args c = copy_struct(reference, "reference", kOldestReferenceArgs);
    const longhaul::ReferenceResult result = longhaul::reference_attention(to_args(args), to_options(c));
    const longhaul::SkipMaskShape& shape = result.mask_shape;
    reference->mask_shape = {shape.voting_heads, shape.groups, shape.blocks};
    check_count(result.output, c.output, c.output_count, "output");
    check_count(result.lse, c.lse, c.lse_count, "lse");
    check_count(result.dropped_mass, c.dropped_mass, c.dropped_mass_count, "dropped_mass");
    check_count(result.counters, c.counters, c.counters_count, "counters");
    check_count(result.skip_mask, c.skip_mask, c.skip_mask_count, "skip_mask");
    copy_out(result.output, c.output);
    copy_out(result.lse, c.lse);
    copy_out(result.dropped_mass, c.dropped_mass);
    copy_out(result.counters, c.counters);
    copy_out(result.skip_mask, c.skip_mask);
  });
}

}  // extern "C"
