#include "attention/testing/cuda_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "attention/sm90/device.h"
#include "core/cuda/devices.h"

namespace longhaul::conformance {
namespace {

constexpr uint8_t kCanary = 0x5b;
constexpr size_t kCanaryBytes = 4096;

size_t span_bytes(const TensorView& view) {
  if (view.size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.shape[i] - 1) * view.stride[i];
  return static_cast<size_t>(last + 1) * dtype_size(view.dtype);
}

void take(const char* name, TensorView& view, uint8_t* host, size_t bytes, std::vector<CudaCopy>& to) {
  to.emplace_back(name, host, bytes);
  view.data = to.back().data();
  view.device = Device::cuda;
}

}  // namespace

CudaCopy::CudaCopy(const char* name, uint8_t* host, size_t bytes)
    : name_(name), host_(host), bytes_(bytes), memory_(bytes + 2 * kCanaryBytes) {
  memory_.fill(kCanary, memory_.bytes());
  renew();
}

void* CudaCopy::data() const { return memory_.data() + kCanaryBytes; }

std::vector<uint8_t> CudaCopy::bytes() const {
  std::vector<uint8_t> copy(bytes_);
  memory_.read(copy.data(), bytes_, kCanaryBytes);
  return copy;
}

bool CudaCopy::unchanged() const {
  const std::vector<uint8_t> copy = bytes();
  return std::equal(copy.begin(), copy.end(), host_);
}

void CudaCopy::renew() const { memory_.write(host_, bytes_, kCanaryBytes); }

bool CudaCopy::canaries_intact() const {
  std::vector<uint8_t> around(2 * kCanaryBytes);
  memory_.read(around.data(), kCanaryBytes, 0);
  memory_.read(around.data() + kCanaryBytes, kCanaryBytes, kCanaryBytes + bytes_);
  return std::all_of(around.begin(), around.end(), [](uint8_t byte) { return byte == kCanary; });
}

CudaRun::CudaRun(AttentionCase& test) : args(test.args), test_(test) {
  for (const auto& [name, view] : {std::pair{"query", &args.query},
                                   {"key", &args.key},
                                   {"value", &args.value},
                                   {"cu_seqlens_q", &args.cu_seqlens_q},
                                   {"cu_seqlens_kv", &args.cu_seqlens_kv},
                                   {"page_table", &args.page_table},
                                   {"kv_lengths", &args.kv_lengths},
                                   {"sinks", &args.sinks},
                                   {"lambda.values", &args.lambda.values}})
    if (view->given()) take(name, *view, static_cast<uint8_t*>(view->data), span_bytes(*view), inputs_);
  test_.clear_results();
  for (const auto& [name, view, tensor] : {std::tuple{"output", &args.output, &test_.output},
                                           {"lse", &args.lse, &test_.lse},
                                           {"counters", &args.counters, &test_.counters},
                                           {"skip_mask", &args.skip_mask, &test_.skip_mask}})
    if (view->given()) {
      take(name, *view, tensor->bytes().data(), tensor->bytes().size(), results_);
      tensors_.push_back(tensor);
    }
  args.threads = 0;
  args.stream = stream.get();
  args.workspace_bytes = attention_workspace_bytes(args, test_.spec.phase);
  workspace_ = DeviceMemory(args.workspace_bytes);
  args.workspace = workspace_.data();
}

void CudaRun::launch() {
  for (const CudaCopy& result : results_) result.renew();
  workspace_.fill(0xff, workspace_.bytes());
  queue();
  stream.wait();
}

void CudaRun::fetch() {
  for (size_t i = 0; i < results_.size(); ++i) {
    // Into the bytes that are there: the tensor's view points at them.
    const std::vector<uint8_t> bytes = results_[i].bytes();
    std::copy(bytes.begin(), bytes.end(), tensors_[i]->bytes().begin());
  }
}

std::vector<std::vector<uint8_t>> CudaRun::result_bytes() const {
  std::vector<std::vector<uint8_t>> all;
  for (const CudaCopy& result : results_) all.push_back(result.bytes());
  return all;
}

std::string CudaRun::trespass() const {
  for (const std::vector<CudaCopy>* copies : {&inputs_, &results_})
    for (const CudaCopy& copy : *copies)
      if (!copy.canaries_intact()) return fmt::format("bytes before or behind {} were overwritten", copy.name());
  for (const CudaCopy& input : inputs_)
    if (!input.unchanged()) return fmt::format("{} was overwritten", input.name());
  return {};
}

const CudaCopy& CudaRun::input(const std::string& name) const {
  for (const CudaCopy& copy : inputs_)
    if (copy.name() == name) return copy;
  throw std::out_of_range(name);
}

bool cuda_runs(std::string& why) {
  const CudaDevices& all = cuda_devices();
  if (all.devices.empty()) {
    why = all.why_none;
    return false;
  }
  why = sm90_refusal(all.devices[0].major, all.devices[0].minor);
  if (!why.empty()) why = fmt::format("{} has {}", all.devices[0].name, why);
  return why.empty();
}

std::string run_on_cuda(AttentionCase& test) {
  CudaRun run(test);
  run.launch();
  const std::vector<std::vector<uint8_t>> first = run.result_bytes();
  run.launch();
  const std::vector<std::vector<uint8_t>> second = run.result_bytes();
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i] != second[i]) return fmt::format("a second run gave other bits of {}", run.results()[i].name());
  if (std::string what = run.trespass(); !what.empty()) return what;
  run.fetch();
  return {};
}

}  // namespace longhaul::conformance
