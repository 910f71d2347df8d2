#include "attention/sm90/status.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "core/cuda/check.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr int kMaxDevices = 64;

struct Word {
  std::atomic<uint32_t*> host{nullptr};
  uint32_t* device = nullptr;
};

Word& word_of(int device) {
  static std::array<Word, kMaxDevices> words;
  if (device >= kMaxDevices)
    throw Unsupported(fmt::format("the current CUDA device is {}, but at most {} are supported", device, kMaxDevices));
  return words[static_cast<size_t>(device)];
}

// Never freed: a kernel may still write when the process ends.
void allocate(Word& word) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (word.host.load() != nullptr) return;
  const RelaxedCapture relaxed;
  void *host = nullptr, *device = nullptr;
  check_cuda(cudaHostAlloc(&host, sizeof(uint32_t), cudaHostAllocMapped), "cudaHostAlloc");
  check_cuda(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
  *static_cast<uint32_t*>(host) = 0;
  word.device = static_cast<uint32_t*>(device);
  word.host.store(static_cast<uint32_t*>(host));
}

std::string describe(uint32_t bits) {
  std::string text;
  const auto add = [&](Sm90Status bit, const char* what) {
    if ((bits & bit) != 0) text += (text.empty() ? "" : ", and ") + std::string(what);
    bits &= ~static_cast<uint32_t>(bit);
  };
  add(kSm90LambdaOutOfRange, "lambda.values that are NaN or outside [0, 1], which acted as 0");
  add(kSm90LengthsMalformed,
      "cu_seqlens_q, cu_seqlens_kv or kv_lengths that decrease, are negative or leave their tensors, so its results "
      "are "
      "not valid");
  add(kSm90MaskTooSmall, "a skip_mask with fewer groups or blocks than its lengths need (skip_mask_shape)");
  add(kSm90TooManyRows,
      "a decode request with more query tokens x query heads per KV head than 64, so its results are not valid");
  if (bits != 0) text += fmt::format("{}an unknown status {:#x}", text.empty() ? "" : ", and ", bits);
  return text;
}

}  // namespace

uint32_t* sm90_status_word() {
  Word& word = word_of(current_cuda_device());
  if (word.host.load() == nullptr) allocate(word);
  return word.device;
}

void report_sm90_status() {
  const int device = current_cuda_device();
  uint32_t* host = word_of(device).host.load();
  if (host == nullptr) return;
  // Looking costs nothing while nobody writes; exchanging every time would take the line from the device.
  std::atomic_ref<uint32_t> word(*host);
  if (word.load(std::memory_order_relaxed) == 0) return;
  const uint32_t bits = word.exchange(0);
  if (bits != 0)
    throw InvalidArgument(fmt::format("an earlier call on CUDA device {} was given {}", device, describe(bits)));
}

}  // namespace longhaul
