#include "attention/config/formula.h"

#include <gtest/gtest.h>

#include <cmath>

#include "longhaul/error.h"

namespace longhaul::config {
namespace {

const std::map<std::string, double> kVariables{{"a", 7.93}, {"b", 8.61}, {"target_sparsity", 0.5}};

TEST(Formula, ThePublishedFormGivesThePublishedFactors) {
  // Factors printed for Qwen3-30B-A3B, prefill; a and b are rounded to three digits.
  const std::pair<double, double> published[] = {{0.1, 18.76}, {0.5, 587.18}, {0.9, 18471.56}};
  for (const auto& [target, factor] : published) {
    const double value =
        evaluate_formula("a * exp(b * target_sparsity)", {{"a", 7.93}, {"b", 8.61}, {"target_sparsity", target}});
    EXPECT_NEAR(value / factor, 1, 0.01);
  }
}

TEST(Formula, PrecedenceAndAssociation) {
  const std::pair<const char*, double> cases[] = {
      {"1+2*3", 7},     {"(1+2)*3", 9}, {"8-3-2", 3},       {"16/4/2", 2}, {"2**3**2", 512}, {"2^3", 8},
      {"-2**2", -4},    {"2**-1", 0.5}, {"--3", 3},         {"3--2", 5},   {"2*-3", -6},     {" 1.5e2 ", 150},
      {".5", 0.5},      {"exp(0)", 1},  {"log(exp(2))", 2}, {"a/a", 1},    {"2 * * 3", NAN}, {"(((1)))", 1},
      {"exp (1-1)", 1}, {"-a+a", 0},    {"2**2*3", 12},
  };
  for (const auto& [text, value] : cases) {
    if (std::isnan(value)) {
      EXPECT_THROW(evaluate_formula(text, kVariables), InvalidArgument) << text;
    } else {
      EXPECT_DOUBLE_EQ(evaluate_formula(text, kVariables), value) << text;
    }
  }
}

TEST(Formula, NothingElseIsUnderstood) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "ends where a value is expected at column 1"},
      {"a *", "ends where a value is expected at column 4"},
      {"a b", "unexpected character at column 3"},
      {"(a", "lacks a closing parenthesis"},
      {"a)", "unexpected character at column 2"},
      {"sin(a)", "unknown name 'sin' (known here are exp, log, a, b, target_sparsity) at column 1"},
      {"__import__", "unknown name '__import__'"},
      {"exp", "lacks the parenthesis after exp"},
      {"exp(a, b)", "lacks a closing parenthesis"},
      {"a % b", "unexpected character"},
      {"+a", "no value where one is expected"},
      {"1e999", "a number that cannot be read"},
      {".", "a number that cannot be read"},
      {"a\nb", "unexpected character"},
  };
  for (const auto& [text, message] : cases) {
    try {
      evaluate_formula(text, kVariables);
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "one line: " << error.what();
    }
  }
}

TEST(Formula, DepthAndLengthAreLimited) {
  EXPECT_THROW(evaluate_formula(std::string(900, '(') + "1", kVariables), InvalidArgument);
  EXPECT_THROW(evaluate_formula(std::string(900, '-') + "1", kVariables), InvalidArgument);
  std::string powers = "1";
  for (int i = 0; i < 300; ++i) powers += "**1";
  EXPECT_THROW(evaluate_formula(powers, kVariables), InvalidArgument);
  EXPECT_THROW(evaluate_formula(std::string(1001, ' ') + "1", kVariables), InvalidArgument);
  EXPECT_EQ(evaluate_formula("((((((((1))))))))", kVariables), 1);
}

}  // namespace
}  // namespace longhaul::config
