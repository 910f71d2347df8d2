// What the tests of the argument checks start from.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// A call that is in order: two requests of 3 and 2 queries on 40 and 30 keys, 4 query heads on 2 KV heads, d 64.
struct Call {
  static constexpr int64_t kQ = 5, kKv = 70, kHq = 4, kHkv = 2, kD = 64;
  std::vector<uint16_t> q, out;
  std::vector<uint16_t> k, v;
  std::vector<float> lse, f32;
  std::vector<int32_t> cu_q{0, 3, 5}, cu_kv{0, 40, 70}, lengths{40, 30}, table{3, 0, 7, 1, 2, 4};
  std::vector<int64_t> counters, probed;
  std::vector<uint8_t> mask;
  AttentionArgs args;
  Phase phase = Phase::prefill;

  Call()
      : q(kQ * kHq * 256),
        out(kQ * kHq * 256),
        k(8 * 16 * kHkv * 256),
        v(8 * 16 * kHkv * 256),
        lse(kHq * kQ),
        f32(64, 0.5F),
        counters(kHq * 4),
        probed(kHq * 40),
        mask(1 << 16) {
    args.query = TensorView(q.data(), DType::bf16, {kQ, kHq, kD});
    args.key = TensorView(k.data(), DType::bf16, {kKv, kHkv, kD});
    args.value = TensorView(v.data(), DType::bf16, {kKv, kHkv, kD});
    args.output = TensorView(out.data(), DType::bf16, {kQ, kHq, kD});
    args.cu_seqlens_q = i32(cu_q);
    args.cu_seqlens_kv = i32(cu_kv);
  }
  static TensorView i32(std::vector<int32_t>& data) {
    return TensorView(data.data(), DType::i32, {static_cast<int64_t>(data.size())});
  }
  TensorView floats(std::initializer_list<int64_t> shape) { return TensorView(f32.data(), DType::f32, shape); }

  void make_paged() {
    args.key = TensorView(k.data(), DType::bf16, {8, 16, kHkv, kD});
    args.value = TensorView(v.data(), DType::bf16, {8, 16, kHkv, kD});
    args.cu_seqlens_kv = {};
    args.page_table = TensorView(table.data(), DType::i32, {2, 3});
    args.kv_lengths = i32(lengths);
  }
  void make_fp8() {
    args.query.dtype = args.key.dtype = args.value.dtype = DType::f8e4m3;
    args.query_scale = floats({kHq});
    args.key_scale = floats({1});
    args.value_scale = floats({kHkv});
  }
  void make_probing() {
    f32 = {0.1F, 0.2F, 0.5F};
    args.probe_lambdas = floats({3});
    args.probe_skipped = TensorView(probed.data(), DType::i64, {kHq, 3});
  }
};

}  // namespace longhaul
