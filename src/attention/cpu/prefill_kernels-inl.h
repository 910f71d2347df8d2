// Picks the instantiation of prefill for head size and mode.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

template <int kD, int kDv, Mode kMode>
size_t prefill_bytes(const AttentionParams& p) {
  return PrefillRun<kD, kDv, kMode>::scratch_floats(p) * sizeof(float);
}
template <int kD, int kDv, Mode kMode>
void prefill_run(const AttentionParams& p, const PrefillItem& item, void* scratch) {
  PrefillRun<kD, kDv, kMode>(p, item, static_cast<float*>(scratch)).run();
}

template <int kD, int kDv>
size_t prefill_bytes_by_mode(const AttentionParams& p) {
  return p.probes > 0 ? prefill_bytes<kD, kDv, Mode::probe>(p) : prefill_bytes<kD, kDv, Mode::skip>(p);
}
template <int kD, int kDv>
void prefill_by_mode(const AttentionParams& p, const PrefillItem& item, void* scratch) {
  switch (mode_of(p, item.request, item.head_kv)) {
    case Mode::dense:
      return prefill_run<kD, kDv, Mode::dense>(p, item, scratch);
    case Mode::skip:
      return prefill_run<kD, kDv, Mode::skip>(p, item, scratch);
    case Mode::probe:
      return prefill_run<kD, kDv, Mode::probe>(p, item, scratch);
  }
}

size_t prefill_scratch_bytes(const AttentionParams& p) {
  if (p.d == 64) return prefill_bytes_by_mode<64, 64>(p);
  if (p.d == 128) return prefill_bytes_by_mode<128, 128>(p);
  if (p.d == 192) return prefill_bytes_by_mode<192, 128>(p);
  return prefill_bytes_by_mode<256, 256>(p);
}

void prefill_item(const AttentionParams& p, const PrefillItem& item, void* scratch) {
  if (p.d == 64) return prefill_by_mode<64, 64>(p, item, scratch);
  if (p.d == 128) return prefill_by_mode<128, 128>(p, item, scratch);
  if (p.d == 192) return prefill_by_mode<192, 128>(p, item, scratch);
  prefill_by_mode<256, 256>(p, item, scratch);
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
