// longhaul info: what this build is, what this machine has, which settings hold.
#include "attention/sm90/decode/decode.h"
#include "attention/sm90/device.h"
#include "attention/sm90/prefill/prefill.h"
#include "attention/tile_plan.h"
#include "cli/attention_flags.h"
#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/machine.h"
#include "core/cpu_features.h"
#include "core/cuda/devices.h"
#include "core/thread_pool.h"
#include "longhaul/error.h"
#include "longhaul/settings.h"

namespace longhaul::cli {
namespace {

struct Chosen {
  std::string isa, threads, error;
};

// A setting that is not allowed must not keep `info` from saying so.
Chosen chosen() {
  Chosen result{"none", "none", ""};
  try {
    result.isa = isa_name(selected_isa());
    result.threads = std::to_string(default_threads());
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

std::string usable_text() {
  std::string text;
  for (const Isa isa : usable_isas()) text += (text.empty() ? "" : ", ") + std::string(isa_name(isa));
  return text;
}

std::string caches_text() {
  std::string text;
  for (const Cache& cache : cpu_caches())
    if (cache.type != "Instruction")
      text +=
          fmt::format("{}L{} {}", text.empty() ? "" : ", ", cache.level, bytes_text(static_cast<double>(cache.bytes)));
  return text.empty() ? "unknown" : text;
}

// What kernels for sm_90a do with a device.
std::string serving_text(const CudaDevice& device) {
  const std::string refusal = sm90_refusal(device.major, device.minor);
  return refusal.empty() ? "kernels for sm_90a serve it, prefill and decode"
                         : fmt::format("not served: it has {}", refusal);
}

void print_gpus() {
  const CudaDevices& all = cuda_devices();
  say("CUDA         {}", *cuda_build() ? fmt::format("built with kernels for sm_90a by nvcc {}", cuda_build())
                                       : std::string("built without GPU kernels"));
  if (all.devices.empty()) say("GPU          none to use: {}", all.why_none);
  for (const CudaDevice& device : all.devices)
    say("GPU {}        {}, {}.{}, {} multiprocessors, {}: {}", device.index, device.name, device.major, device.minor,
        device.multiprocessors, bytes_text(static_cast<double>(device.memory_bytes)), serving_text(device));
}

void print_info(const Chosen& now) {
  say("longhaul {} ({}, {}{})", version_text(), build_type(), compiler_text(),
      *build_commit() ? fmt::format(", commit {}", build_commit()) : "");
  print_gpus();
  say("machine      {}, {} cores, {} of memory", cpu_model(), usable_cores(),
      bytes_text(static_cast<double>(memory_bytes())));
  say("caches       {}", caches_text());
  say("system       {}", operating_system());
  say("instructions {}; in use: {}", usable_text(), now.isa);
  if (!why_not_amx().empty()) say("no amx       {}", why_not_amx());
  say("threads      {} unless a call says otherwise\n", now.threads);

  Table kernels({"kernel", "voting group"});
  kernels.words();
  kernels.add({"prefill", geometry_text(kCpuPrefill)});
  kernels.add({"decode", geometry_text(kCpuDecode)});
  if (*cuda_build()) {
    kernels.add({"prefill on CUDA", geometry_text(kSm90Prefill)});
    kernels.add({"decode on CUDA", geometry_text(kSm90Decode)});
  }
  say("{}", kernels.text());

  Table table({"setting", "value", "meaning", "allowed"});
  table.words();
  for (const Setting& setting : settings())
    table.add({std::string(setting.name), setting.value, std::string(setting.meaning), std::string(setting.allowed)});
  print_text(table.text());
}

Json gpus_json() {
  Json list = Json::array();
  for (const CudaDevice& device : cuda_devices().devices)
    list.push_back({{"index", device.index},
                    {"name", device.name},
                    {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                    {"multiprocessors", device.multiprocessors},
                    {"memory_bytes", device.memory_bytes},
                    {"why_not_served", sm90_refusal(device.major, device.minor)}});
  return list;
}

Json kernels_json() {
  Json kernels = {{"prefill", geometry_json(kCpuPrefill)}, {"decode", geometry_json(kCpuDecode)}};
  if (*cuda_build())
    kernels.update({{"prefill_on_cuda", geometry_json(kSm90Prefill)}, {"decode_on_cuda", geometry_json(kSm90Decode)}});
  return kernels;
}

Json info_json(const Chosen& now) {
  Json list = Json::array();
  for (const Setting& s : settings())
    list.push_back({{"name", s.name},
                    {"value", s.value},
                    {"from_environment", s.from_environment},
                    {"meaning", s.meaning},
                    {"allowed", s.allowed},
                    {"default", s.default_value},
                    {"error", s.error}});
  Json isas = Json::array();
  for (const Isa isa : usable_isas()) isas.push_back(isa_name(isa));
  return {{"version", version_text()},
          {"commit", build_commit()},
          {"build",
           {{"type", build_type()},
            {"compiler", compiler_text()},
            {"cuda_kernels", *cuda_build() != 0},
            {"cuda_toolkit", cuda_build()}}},
          {"gpus", gpus_json()},
          {"why_no_gpu", cuda_devices().why_none},
          {"cpu", cpu_model()},
          {"cores", usable_cores()},
          {"memory_bytes", memory_bytes()},
          {"usable_isas", isas},
          {"isa", now.isa},
          {"why_not_amx", why_not_amx()},
          {"threads", now.threads},
          {"kernels", kernels_json()},
          {"settings", list},
          {"unknown_settings", unknown_settings()}};
}

int run_info(const Invocation& invocation) {
  const Chosen now = chosen();
  print_info(now);
  bool wrong = false;
  for (const std::string& name : unknown_settings())
    say("\n{} is set in the environment, but this version knows no such setting", name);
  for (const Setting& setting : settings()) {
    if (setting.error.empty()) continue;
    say("\n{}", setting.error);
    wrong = true;
  }
  if (!now.error.empty() && !wrong) say("\n{}", now.error);
  write_json(invocation.json, info_json(now));
  return wrong || !now.error.empty() ? kFailed : kFine;
}

}  // namespace

void add_info(CLI::App& program, Invocation& invocation) {
  auto* command = program.add_subcommand("info", "Show this build, this machine, the kernels in use and the settings");
  finish_command(*command, invocation,
                 "  longhaul info\n"
                 "  LONGHAUL_ISA=portable longhaul info\n"
                 "  longhaul info --json info.json",
                 [&invocation] { return run_info(invocation); });
}

}  // namespace longhaul::cli
