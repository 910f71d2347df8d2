// The end of the demo: settings for a sparsity, for Longhaul and for TensorRT-LLM.
#pragma once

#include <string>

#include "cli/support/json.h"

namespace longhaul::cli {

struct SettingsOutcome {
  std::string longhaul_yaml, trtllm_yaml;
  Json json;
};

/// Calibrates both phases of the captured file or folder, says what was achieved on held-out samples, and prints both
/// files.
SettingsOutcome calibrate_settings(const std::string& data, const std::string& model, double target, int threads);

}  // namespace longhaul::cli
