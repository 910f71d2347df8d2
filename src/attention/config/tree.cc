#include "attention/config/tree.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "io/printable.h"
#include "longhaul/error.h"

namespace longhaul::config {
namespace {

std::string extend(const std::string& path, std::string_view key) {
  return path.empty() ? printable(key) : fmt::format("{}.{}", path, printable(key));
}

}  // namespace

void Value::fail(const std::string& what) const {
  const std::string where = node_->line > 0 ? fmt::format("{} line {}", source_, node_->line) : std::string(source_);
  throw InvalidArgument(fmt::format("{}: {} {}", where, path_.empty() ? "the file" : path_, what));
}

std::string Value::describe() const {
  switch (node_->kind) {
    case Node::Kind::null:
      return "empty";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::string:
      return fmt::format("'{}'", printable(node_->text));
    default:
      return printable(node_->text);
  }
}

const Node* Value::find(std::string_view key) const {
  for (const auto& [name, node] : node_->members) {
    if (name == key) return &node;
  }
  return nullptr;
}

const Value& Value::expect_map(std::initializer_list<std::string_view> allowed) const {
  if (!is_map()) fail(fmt::format("is {}; it must be a map", describe()));
  if (allowed.size() == 0) return *this;
  for (const auto& [key, node] : node_->members) {
    bool known = false;
    for (const std::string_view name : allowed) known = known || name == key;
    if (!known) {
      Value(node, source_, path_)
          .fail(fmt::format("has the unknown key '{}'; allowed are {}", printable(key), fmt::join(allowed, ", ")));
    }
  }
  return *this;
}

Value Value::operator[](std::string_view key) const {
  const Node* found = find(key);
  if (found == nullptr) fail(fmt::format("has no {}", key));
  return {*found, source_, extend(path_, key)};
}

std::vector<std::pair<std::string, Value>> Value::members() const {
  std::vector<std::pair<std::string, Value>> result;
  for (const auto& [key, node] : node_->members) result.emplace_back(key, Value(node, source_, extend(path_, key)));
  return result;
}

std::vector<Value> Value::items() const {
  if (node_->kind != Node::Kind::list) fail(fmt::format("is {}; it must be a list", describe()));
  std::vector<Value> result;
  for (size_t i = 0; i < node_->items.size(); ++i) {
    result.emplace_back(node_->items[i], source_, fmt::format("{}[{}]", path_, i));
  }
  return result;
}

double Value::number() const {
  if (!is_number()) fail(fmt::format("is {}; it must be a number", describe()));
  if (!std::isfinite(node_->number)) fail(fmt::format("is {}; it must be finite", describe()));
  return node_->number;
}

double Value::number_in(double low, double high) const {
  const double value = number();
  if (value < low || value > high) fail(fmt::format("is {}; allowed are {} to {}", describe(), low, high));
  return value;
}

double Value::number_at_least_0() const {
  const double value = number();
  if (value < 0) fail(fmt::format("is {}; allowed are finite numbers >= 0", describe()));
  return value;
}

int64_t Value::integer_in(int64_t low, int64_t high) const {
  const double value = number();
  if (value != std::floor(value) || value < static_cast<double>(low) || value > static_cast<double>(high)) {
    fail(fmt::format("is {}; allowed are integers from {} to {}", describe(), low, high));
  }
  return static_cast<int64_t>(value);
}

std::string Value::string() const {
  if (node_->kind != Node::Kind::string) fail(fmt::format("is {}; it must be a string", describe()));
  return node_->text;
}

std::vector<std::string> Value::strings() const {
  std::vector<std::string> result;
  for (const Value& item : items()) result.push_back(item.string());
  return result;
}

Interval Value::interval(double low, double high) const {
  const std::vector<Value> ends = items();
  if (ends.size() != 2) fail(fmt::format("has {} entries; it must be [low, high]", ends.size()));
  const Interval result{ends[0].number_in(low, high), ends[1].number_in(low, high)};
  if (result.low > result.high) fail(fmt::format("is [{}, {}]; low must not exceed high", result.low, result.high));
  return result;
}

ByPhase<double> read_by_phase(const Value& value, double high) {
  const auto read = [high](const Value& scalar) {
    return std::isinf(high) ? scalar.number_at_least_0() : scalar.number_in(0, high);
  };
  ByPhase<double> result;
  if (!value.is_map()) {
    if (!value.is_number()) {
      value.fail(fmt::format("is {}; it must be a number or a map with prefill and decode", value.describe()));
    }
    result.prefill = result.decode = read(value);
    return result;
  }
  value.expect_map({"prefill", "decode"});
  if (value.node().members.empty()) value.fail("is an empty map; it must hold prefill, decode or both");
  if (value.has("prefill")) result.prefill = read(value["prefill"]);
  if (value.has("decode")) result.decode = read(value["decode"]);
  return result;
}

std::string yaml_number(double value) {
  std::string text = fmt::format("{}", value);
  const size_t e = text.find('e');
  if (e != std::string::npos && text.find('.') == std::string::npos) text.insert(e, ".0");
  return text;
}

std::string yaml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace longhaul::config
