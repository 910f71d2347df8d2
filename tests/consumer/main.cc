// Attention over one key returns that key's value: a result that needs no reference.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "longhaul/attention.h"
#include "longhaul/error.h"
#include "longhaul/version.h"

int main() {
  std::vector<float> query(64, 1.0F);
  std::vector<float> key(64, 0.5F);
  std::vector<float> value(64);
  std::vector<float> output(64);
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<float>(i);
  }
  std::vector<int32_t> cu_seqlens{0, 1};
  longhaul::AttentionArgs args;
  args.query = {query.data(), longhaul::DType::f32, {1, 1, 64}};
  args.key = {key.data(), longhaul::DType::f32, {1, 1, 64}};
  args.value = {value.data(), longhaul::DType::f32, {1, 1, 64}};
  args.output = {output.data(), longhaul::DType::f32, {1, 1, 64}};
  args.cu_seqlens_q = {cu_seqlens.data(), longhaul::DType::i32, {2}};
  args.cu_seqlens_kv = args.cu_seqlens_q;
  try {
    args.workspace_bytes = longhaul::attention_workspace_bytes(args, longhaul::Phase::prefill);
    void* workspace = std::aligned_alloc(64, (args.workspace_bytes + 64) / 64 * 64);
    args.workspace = workspace;
    longhaul::prefill(args);
    std::free(workspace);
  } catch (const longhaul::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  if (output != value) {
    std::fprintf(stderr, "the output differs from the only value\n");
    return 1;
  }
  try {
    args.query.rank = 9;
    longhaul::prefill(args);
    std::fprintf(stderr, "a query of rank 9 was accepted\n");
    return 1;
  } catch (const longhaul::InvalidArgument& error) {  // caught by type across the library's border
    std::printf("longhaul %s: %s\n", LONGHAUL_VERSION, error.what());
  }
  return longhaul::version() == LONGHAUL_VERSION ? 0 : 1;
}
