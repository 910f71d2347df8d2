#include "attention/config/formula.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "io/printable.h"
#include "longhaul/error.h"

namespace longhaul::config {
namespace {

constexpr size_t kMaxLength = 1000;
constexpr int kMaxDepth = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// sum = product {(+|-) product};  product = signed {(*|/) signed};  signed = -signed | power;  power = atom [(**|^)
// signed]
class Evaluator {
 public:
  Evaluator(std::string_view text, const std::map<std::string, double>& variables)
      : text_(text), variables_(variables) {}

  double run() {
    const double value = sum();
    if (peek() != '\0') fail("has an unexpected character");
    return value;
  }

 private:
  class Depth {
   public:
    explicit Depth(Evaluator& evaluator) : evaluator_(evaluator) {
      if (++evaluator_.depth_ > kMaxDepth) evaluator_.fail(fmt::format("nests deeper than {} levels", kMaxDepth));
    }
    ~Depth() { --evaluator_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Evaluator& evaluator_;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("the formula '{}' {} at column {}", printable(text_), what, position_ + 1));
  }

  char peek() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t')) ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool take(std::string_view symbol) {
    peek();
    if (text_.substr(position_, symbol.size()) != symbol) return false;
    position_ += symbol.size();
    return true;
  }
  bool take_times() {
    peek();
    return text_.substr(position_, 2) != "**" && take("*");
  }

  double sum() {
    const Depth depth(*this);
    double value = product();
    for (;;) {
      if (take("+")) {
        value += product();
      } else if (take("-")) {
        value -= product();
      } else {
        return value;
      }
    }
  }

  double product() {
    double value = signed_power();
    for (;;) {
      if (take_times()) {
        value *= signed_power();
      } else if (take("/")) {
        value /= signed_power();
      } else {
        return value;
      }
    }
  }

  double signed_power() {
    const Depth depth(*this);
    return take("-") ? -signed_power() : power();
  }

  double power() {
    const double base = atom();
    return take("**") || take("^") ? std::pow(base, signed_power()) : base;
  }

  double atom() {
    const char c = peek();
    if (take("(")) return closing(sum());
    if (is_digit(c) || c == '.') return number();
    if (is_letter(c)) return name();
    fail(c == '\0' ? "ends where a value is expected" : "has no value where one is expected");
  }

  double closing(double value) {
    if (!take(")")) fail("lacks a closing parenthesis");
    return value;
  }

  double number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("has a number that cannot be read");
    position_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  double name() {
    const size_t begin = position_;
    while (position_ < text_.size() && (is_letter(text_[position_]) || is_digit(text_[position_]))) ++position_;
    const std::string word(text_.substr(begin, position_ - begin));
    if (word == "exp" || word == "log") {
      if (!take("(")) fail(fmt::format("lacks the parenthesis after {}", word));
      const double argument = closing(sum());
      return word == "exp" ? std::exp(argument) : std::log(argument);
    }
    const auto found = variables_.find(word);
    if (found != variables_.end()) return found->second;
    position_ = begin;
    std::string allowed = "exp, log";
    for (const auto& [variable, value] : variables_) allowed += ", " + variable;
    fail(fmt::format("uses the unknown name '{}' (known here are {})", printable(word), allowed));
  }

  std::string_view text_;
  const std::map<std::string, double>& variables_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

double evaluate_formula(std::string_view formula, const std::map<std::string, double>& variables) {
  if (formula.size() > kMaxLength) {
    throw InvalidArgument(fmt::format("the formula '{}' has {} bytes; at most {} are read", printable(formula),
                                      formula.size(), kMaxLength));
  }
  return Evaluator(formula, variables).run();
}

}  // namespace longhaul::config
