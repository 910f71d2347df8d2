// longhaul report: results against the targets.
#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/json.h"
#include "cli/support/shipped_files.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

struct Result {
  Json row;
  std::string date, file, machine;
};

std::string text_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string number_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? short_number(at->get<double>()) : "";
}

std::string count_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? fmt::format("{:.0f}", at->get<double>()) : "";
}

std::string machine_name(const Json& file) {
  const auto machine = file.find("machine");
  if (machine == file.end() || !machine->is_object()) return "";
  const std::string gpu = text_of(*machine, "gpu");
  if (!gpu.empty()) return gpu;
  const std::string isa = text_of(*machine, "isa");
  return text_of(*machine, "cpu") + (isa.empty() ? "" : " (" + isa + ")");
}

// All rows of a file; throws where it is no result file at all, since a typing error must not pass for "not measured".
void read_results(const std::filesystem::path& path, std::vector<Result>& results) {
  const Json file = read_json(path.string());
  const auto rows = file.is_object() ? file.find("rows") : file.end();
  if (!file.is_object() || rows == file.end() || !rows->is_array())
    throw InvalidArgument(fmt::format("'{}' is no result file: it has no list \"rows\"", path.string()));
  for (const Json& row : *rows) {
    if (!row.is_object() || text_of(row, "id").empty())
      throw InvalidArgument(fmt::format("'{}' has a row without an \"id\"", path.string()));
    std::string machine = machine_name(file);
    // A card at its power limit is as good as another machine: a target must be met in both regimes.
    if (file.contains("machine") && !text_of(file["machine"], "gpu").empty() && !text_of(row, "regime").empty())
      machine += ", " + text_of(row, "regime");
    results.push_back({row, text_of(file, "date"), path.string(), machine});
  }
}

std::vector<Result> read_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(folder)) throw System(fmt::format("'{}' is not a folder", folder));
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".json") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Result> results;
  for (const fs::path& path : paths) read_results(path, results);
  // The newest last.
  std::stable_sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.date < b.date; });
  return results;
}

struct Target {
  std::string id, rival, goal, description;
  const char* measure;  // "ratio" or "value"
  double at_least = 0;
};

std::vector<Target> read_targets(const std::string& path) {
  const Json file = read_json(path);
  std::vector<Target> targets;
  try {
    for (const Json& entry : file.at("targets")) {
      Target target;
      target.id = entry.at("id").get<std::string>();
      target.rival = entry.at("rival").get<std::string>();
      target.description = entry.at("description").get<std::string>();
      target.measure = entry.contains("ratio") ? "ratio" : "value";
      target.at_least = entry.at(target.measure).get<double>();
      target.goal = fmt::format("{} >= {}", target.measure, target.at_least);
      targets.push_back(std::move(target));
    }
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(fmt::format("'{}' is no table of targets: {}", path, error.what()));
  }
  return targets;
}

std::string verdict(const Target& target, const Result* result) {
  if (result == nullptr) return "not measured";
  const auto measured = result->row.find(target.measure);
  if (measured == result->row.end() || !measured->is_number()) return "not measured";
  return measured->get<double>() >= target.at_least ? "met" : "missed";
}

void add_row(Table& table, const std::string& id, const Result* result, const std::string& goal,
             const std::string& state, const std::string& rival) {
  if (result == nullptr) return table.add({id, "", "", rival, "", goal, state});
  const Json& row = result->row;
  const std::string measured = number_of(row, "value");
  table.add({id, measured.empty() ? "" : measured + " " + text_of(row, "unit"), number_of(row, "ratio"),
             text_of(row, "rival").empty() ? rival : text_of(row, "rival"), number_of(row, "rival_value"), goal, state,
             count_of(row, "n"), result->date.substr(0, 10), result->machine});
}

Json row_json(const Result* result, const Target* target, const std::string& state) {
  Json json = {{"id", target != nullptr ? target->id : text_of(result->row, "id")}, {"state", state}};
  if (target != nullptr) json[std::string("target_") + target->measure] = target->at_least;
  if (result != nullptr)
    json.update(
        {{"result", result->row}, {"date", result->date}, {"file", result->file}, {"machine", result->machine}});
  return json;
}

struct ReportOptions {
  std::string folder, targets;
  bool all = false;
};

int run_report(const Invocation& invocation, const ReportOptions& options) {
  const std::vector<Result> results = read_folder(options.folder);
  std::string targets_path = options.targets;
  if (targets_path.empty()) targets_path = shipped_path("bench/targets.json");
  const std::vector<Target> targets = read_targets(targets_path);
  // A target is judged on every machine that measured it, by that machine's newest row.
  std::map<std::string, std::map<std::string, const Result*>> newest;
  for (const Result& result : results) newest[text_of(result.row, "id")][result.machine] = &result;

  Table table({"id", "value", "ratio", "rival", "rival's value", "target", "state", "n", "date", "machine"});
  table.words();
  Json rows = Json::array();
  int met = 0, missed = 0, not_measured = 0, no_target = 0;
  for (const Target& target : targets) {
    std::vector<const Result*> found;
    for (const auto& [machine, result] : newest[target.id]) found.push_back(result);
    if (found.empty()) found.push_back(nullptr);
    for (const Result* result : found) {
      const std::string state = verdict(target, result);
      ++(state == "met" ? met : state == "missed" ? missed : not_measured);
      add_row(table, target.id, result, target.goal, state, target.rival);
      rows.push_back(row_json(result, &target, state));
    }
    newest.erase(target.id);
  }
  for (const auto& [id, by_machine] : newest)
    for (const auto& [machine, result] : by_machine) {
      if (options.all) add_row(table, id, result, "", "no target", "");
      ++no_target;
      rows.push_back(row_json(result, nullptr, "no target"));
    }
  print_text(table.text());
  say("\n{} met, {} missed, {} not measured{}", met, missed, not_measured,
      options.all || no_target == 0 ? "" : fmt::format("; results without a target: {}, shown by --all", no_target));
  Json json = result_header(invocation.command_line);
  json["met"] = met;
  json["missed"] = missed;
  json["not_measured"] = not_measured;
  json["results"] = std::move(rows);
  write_json(invocation.json, json);
  return kFine;
}

}  // namespace

void add_report(CLI::App& program, Invocation& invocation) {
  auto* command = program.add_subcommand(
      "report",
      "Print the results of a folder against the targets\n\nA row with ratio 1 equals its rival; a target that no "
      "file measures is shown as not measured.");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("DIR", options->folder, "Folder of result files, searched with its subfolders")
      ->required()
      ->check(path_of("folder"));
  command
      ->add_option("--targets", options->targets, "The table of targets (default: the one that comes with the program)")
      ->type_name("FILE")
      ->check(path_of("file"));
  command->add_flag("--all", options->all, "Also show the results that have no target (--json always holds them)");
  finish_command(*command, invocation,
                 "  longhaul report bench/results\n  longhaul report bench/results --json summary.json",
                 [&invocation, options] { return run_report(invocation, *options); });
}

}  // namespace longhaul::cli
