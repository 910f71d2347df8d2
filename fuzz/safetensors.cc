#include <numeric>
#include <vector>

#include "fuzz.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  std::vector<uint8_t> aligned(data, data + size);  // of exactly this size, so that a read behind the end is seen
  return fuzz::refuses_politely([&] {
    const auto contents = parse_safetensors(std::as_bytes(std::span(aligned)), "input");
    volatile unsigned sum = 0;
    for (const NamedTensor& tensor : contents.tensors) {
      tensor.view.check(tensor.name);
      const auto* bytes = static_cast<const uint8_t*>(tensor.view.data);
      sum = std::accumulate(bytes, bytes + tensor.view.size() * static_cast<int64_t>(dtype_size(tensor.view.dtype)),
                            sum + 0U);
    }
  });
}
