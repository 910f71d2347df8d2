// What the tensors of a case hold.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/testing/attention_case.h"
#include "attention/testing/random.h"

namespace longhaul::conformance {
namespace {

constexpr double kQueryGain = 0.5;  // of sqrt(d), along the common direction

std::vector<double> unit_vector(Random& random, int n) {
  std::vector<double> u(n);
  double sum = 0;
  for (double& x : u) x = random.normal(), sum += x * x;
  for (double& x : u) x /= std::sqrt(sum);
  return u;
}

}  // namespace

void AttentionCase::draw_values(Random& random) {
  const double root = std::sqrt(static_cast<double>(spec.d));
  const auto at = [](const std::vector<float>& scales, int head) {
    return scales.empty() ? 1.0 : scales[head % scales.size()];
  };
  for (int head = 0; head < spec.heads_kv; ++head) {
    const std::vector<double> way = unit_vector(random, spec.d);
    for (int h = head * spec.group; h < (head + 1) * spec.group; ++h) {
      for (int64_t t = 0; t < total_q; ++t) {
        const double gain = kQueryGain * root * random.uniform(0.8, 1.2);
        for (int c = 0; c < spec.d; ++c)
          set_query(t, h, c, static_cast<float>((gain * way[c] + random.normal()) / at(q_scale_, h)));
      }
    }
    for (int b = 0; b < static_cast<int>(kv_lengths.size()); ++b) {
      double level = 0;
      for (int64_t t = 0; t < kv_lengths[b]; ++t) {
        if (t % 16 == 0) level = random.chance(0.3) ? random.uniform(2, 12) : random.uniform(-3, 1);
        // score = gain * along / root = level, and the keys of a block lie up to 4 nats below its level.
        const double along = (level - random.uniform(0, 4)) / kQueryGain;
        for (int c = 0; c < spec.d; ++c)
          set(args.key, b, t, head, c, static_cast<float>((along * way[c] + random.normal()) / at(k_scale_, head)));
        for (int c = 0; c < spec.dv(); ++c)
          set(args.value, b, t, head, c, static_cast<float>(random.normal() / at(v_scale_, head)));
      }
    }
  }
}

void AttentionCase::plant_poison(Random& random) {
  if (spec.poison == Poison::none || total_q == 0 || total_kv == 0) return;
  const DType dtype = spec.poison == Poison::query ? spec.query : spec.kv;
  const float inf = std::numeric_limits<float>::infinity();
  float bad = random.pick({std::numeric_limits<float>::quiet_NaN(), inf, -inf});
  if (dtype == DType::f8e4m3) bad = std::numeric_limits<float>::quiet_NaN();  // it has no infinities
  if (spec.device == Device::cuda && spec.poison == Poison::value) {
    // A tensor core multiplies the weights of 0 of the keys that a row does not see, and flushes small weights to 0.
    if (spec.masking != Masking::full) return;
    bad = std::numeric_limits<float>::quiet_NaN();
  }
  if (spec.poison == Poison::query) {
    set_query(random.integer(0, total_q - 1), static_cast<int>(random.integer(0, heads_q() - 1)),
              static_cast<int>(random.integer(0, spec.d - 1)), bad);
    return;
  }
  const int longest = static_cast<int>(std::max_element(kv_lengths.begin(), kv_lengths.end()) - kv_lengths.begin());
  const bool key = spec.poison == Poison::key;
  set(key ? args.key : args.value, longest, random.integer(0, kv_lengths[longest] - 1),
      static_cast<int>(random.integer(0, spec.heads_kv - 1)),
      static_cast<int>(random.integer(0, (key ? spec.d : spec.dv()) - 1)), bad);
}

}  // namespace longhaul::conformance
