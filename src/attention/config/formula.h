// The tiny language of threshold-scale-factor formulas: numbers, named variables, + - * / ** ^, unary minus,
// parentheses, exp, log.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace longhaul::config {

/// ** and ^ are powers, bind to the right and tighter than a minus on their left. At most 1000 bytes and 32 nested
/// parentheses or signs. Throws InvalidArgument naming the place and what is allowed. The result may be infinite or
/// NaN.
double evaluate_formula(std::string_view formula, const std::map<std::string, double>& variables);

}  // namespace longhaul::config
