// A configuration file of any of the three forms, applied to a call.
#pragma once

#include <string>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul::cli {

struct ConfigChoice {
  std::string path;
  int layer = -1;  ///< -1: not given; needed where the file has laws by layer
  bool extrapolate = false;
  bool rule_given = false;  ///< args.rule was chosen on the command line and must agree
};

/// Sets rule and lambda of `args`, whose tensors must be there. `storage` keeps the lambdas [batch, heads_q]; `notes`
/// gets what a user should know. Throws InvalidArgument where the file was calibrated for another rule, order or voting
/// group.
void apply_config(const ConfigChoice& choice, Phase phase, AttentionArgs& args, std::vector<float>& storage,
                  std::vector<std::string>& notes);

}  // namespace longhaul::cli
