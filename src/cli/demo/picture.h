// The demo's picture: speed-up and output error over sparsity, both phases, beside the ideal and the published order.
#pragma once

#include <string>
#include <vector>

#include "cli/demo/study.h"

namespace longhaul::cli {

std::string demo_picture(const std::vector<Study>& studies, const std::string& subtitle,
                         const std::vector<std::string>& notes);

}  // namespace longhaul::cli
