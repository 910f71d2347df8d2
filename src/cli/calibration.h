// Captured files as calibration samples, and the tables of a calibration.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/demo/activations.h"
#include "cli/support/json.h"
#include "io/safetensors.h"
#include "longhaul/calibrate.h"

namespace longhaul::cli {

/// The layers of one file: layer.N.query, layer.N.key, layer.N.value, or plain query, key, value as layer 0, with
/// sinks, query_scale, key_scale and value_scale where it has them. Each a causal prefill of one request, with a key
/// for each query.
struct Capture {
  explicit Capture(const std::string& path);
  std::string name;
  SafetensorsFile file;
  std::vector<CalibrationInput> layers;
  int64_t tokens() const { return layers[0].args.query.shape[0]; }
};

/// Samples for the oracle of a published kernel, which is slow: in prefill runs of 64 queries spread over texts of
/// several lengths (the whole to fit, half to fit, three quarters held out), each with the context length of its text;
/// in decode as the library's own.
class PublishedSamples {
 public:
  PublishedSamples(const Capture& capture, Phase phase);
  std::vector<CalibrationSample> samples;

 private:
  std::vector<std::unique_ptr<PrefillSample>> parts_;  // own what the samples point to
};

/// Sparsity targets by layer and head: the lambda each needs, and all of them together.
std::string lambda_table(const CalibrationReport& report);
/// What one lambda of the grid gives by layer and head, for a few lambdas.
std::string sparsity_table(const CalibrationReport& report);
std::string held_out_table(const CalibrationReport& report, bool scale_factor);
std::string law_text(const LambdaLaw& law);
std::string law_text(const LambdaLaw& law, double target);  ///< with the number that the target gives
Json calibration_json(const CalibrationReport& report);

}  // namespace longhaul::cli
