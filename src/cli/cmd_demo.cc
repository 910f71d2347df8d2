// longhaul demo: the whole story on activations of a real model reading a real novel.
#include <algorithm>
#include <filesystem>

#include "cli/attention_flags.h"
#include "cli/command.h"
#include "cli/demo/activations.h"
#include "cli/demo/picture.h"
#include "cli/demo/settings.h"
#include "cli/demo/study.h"
#include "cli/support/console.h"
#include "cli/support/interrupt.h"
#include "cli/support/machine.h"
#include "cli/support/shipped_files.h"
#include "core/cpu_features.h"
#include "core/thread_pool.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

struct DemoOptions {
  std::string data, out = "longhaul-demo";
  int threads = 0, repeat = 5;
};

const std::vector<double> kLambdas{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3};
const std::vector<double> kPublishedLambdas{0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 0.6, 1};
// The published Hopper kernels: a warpgroup's 64 rows on 128 keys; in decode all heads of a KV head on 64 keys.
constexpr Geometry kPublishedPrefill{.tile_keys = 128, .block_keys = 128, .group_rows = 64};
constexpr Geometry kPublishedDecode{.tile_keys = 64, .block_keys = 64, .group_rows = 0};
constexpr int64_t kSampleGroups = 8, kSampleRows = 64, kDecodeRequests = 32;
constexpr double kTarget = 0.5;

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i)
    text += (i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
  return text;
}

std::string metadata_or(const Activations& data, const std::string& key, const std::string& other) {
  const auto at = data.metadata().find(key);
  return at != data.metadata().end() ? at->second : other;
}

// The captured KV heads, by layer: "0;2;2;1".
std::string heads_text(const Activations& data) {
  const std::string heads = metadata_or(data, "kv_heads", "");
  if (heads.empty()) return fmt::format("{} KV heads each", data.heads_kv_per_layer());
  std::string text;
  for (const char c : heads) text += c == ';' ? std::string(", ") : std::string(1, c);
  return "KV heads " + text;
}

// Model, weights and text, said beside every result.
std::string provenance(const Activations& data) {
  return fmt::format(
      "{}, weights {}, reading {}, {} tokens; layers {}, {}, with {} query heads a KV head, head size {}, {}",
      metadata_or(data, "model", "unnamed model"), metadata_or(data, "weights", "of unstated precision"),
      metadata_or(data, "text", "an unnamed text"), data.tokens(), join(data.layers()), heads_text(data), data.group(),
      data.d(), dtype_name(data.args().query.dtype));
}

StudyInput prefill_input(const Activations& data, const PrefillSample& sample, const DemoOptions& options,
                         int threads) {
  return {Phase::prefill, data.args(),       sample.args(),  kPublishedPrefill,
          kLambdas,       kPublishedLambdas, options.repeat, threads};
}

StudyInput decode_input(const DecodeBatch& batch, const DemoOptions& options, int threads) {
  return {Phase::decode, batch.args(),      batch.args(),       kPublishedDecode,
          kLambdas,      kPublishedLambdas, 4 * options.repeat, threads};
}

void print_study(const Study& study, const std::string& what) {
  say("\n{}", what);
  say("Blocks of keys whose scores lie more than ln(1/lambda) below the best are skipped: the speed-up is what that "
      "earns, the output error what it costs.\n");
  print_text(study_table(study));
  say("  sparsity: share of the visible scores whose softmax and P.V were skipped    ideal: 1/(1 - s/2), since all "
      "scores are computed");
  say("  output error: relative to the dense output, rms and worst row    mass dropped: softmax weight of the skipped "
      "keys, mean over rows");
  say("* sparsity at the same output error in the published order (oldest key first) and voting group ({} x {}): the "
      "oracle's,",
      study.published.group_rows > 0 ? fmt::format("{} rows", study.published.group_rows) : "all heads of a KV head",
      fmt::format("{} keys", study.published.block_keys));
  const bool all = study.sample_queries == study.queries;
  say("  in double precision, on {} queries; '-' where it never has that error",
      all ? fmt::format("all {}", study.queries) : fmt::format("{} of the {}", study.sample_queries, study.queries));
  flush_text();
}

// Interpolated on the kernel's own curve.
std::vector<CurvePoint> own_curve(const Study& study) {
  std::vector<CurvePoint> curve;
  for (const StudyRow& row : study.rows)
    if (row.lambda && *row.lambda > 0) curve.push_back({*row.lambda, row.sparsity, row.error.relative_rms});
  return curve;
}

Json order_rows(const Study& prefill, const std::string& regime) {
  Json rows = Json::array();
  for (const auto& [name, error] : {std::pair{"e01", 0.01}, std::pair{"e03", 0.03}}) {
    const auto own = sparsity_at_error(own_curve(prefill), error),
               published = sparsity_at_error(prefill.published_curve, error);
    if (!own || !published) continue;
    rows.push_back({{"id", std::string("attn.cpu.order.") + name},
                    {"value", *own},
                    {"unit", "sparsity"},
                    {"rival", "ascending, 64 x 128, by the oracle"},
                    {"rival_value", *published},
                    {"ratio", *own / *published},
                    {"n", 1},
                    {"spread", Json()},
                    {"regime", regime}});
  }
  return rows;
}

std::string machine_text(int threads) {
  return fmt::format("{}, {} threads, {}", cpu_model(), threads, isa_name(selected_isa()));
}

std::vector<Study> run_studies(const Activations& data, const DemoOptions& options, int threads) {
  const PrefillSample sample(data.args(), data.tokens(), kSampleGroups, kSampleRows);
  const DecodeBatch batch(data.args(), kDecodeRequests);
  std::vector<Study> studies;
  studies.push_back(run_study(prefill_input(data, sample, options, threads)));
  print_study(studies.back(),
              fmt::format("PREFILL: all {} tokens at once; {}", data.tokens(), geometry_text(studies.back().own)));
  studies.push_back(run_study(decode_input(batch, options, threads)));
  print_study(studies.back(), fmt::format("DECODE: one new token for each of {} requests, {} to {} tokens long; {}",
                                          kDecodeRequests, data.tokens() / 2 + data.tokens() / 2 / kDecodeRequests,
                                          data.tokens(), geometry_text(studies.back().own)));
  return studies;
}

int run_demo(const Invocation& invocation, const DemoOptions& options) {
  const Activations data(options.data.empty() ? shipped_path("data/activations.safetensors") : options.data);
  const int threads = options.threads > 0 ? options.threads : default_threads();
  const std::string about = provenance(data), machine = machine_text(threads);
  const std::filesystem::path folder = options.out;
  if (data.tokens() < kSampleGroups * kSampleRows)
    throw InvalidArgument(fmt::format("the activations have {} tokens, but the demo needs at least {}", data.tokens(),
                                      kSampleGroups * kSampleRows));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw System(fmt::format("--out: cannot make the folder '{}': {}", options.out, error.message()));
  check_writable("--out", folder / "skipping.svg");
  say("Attention on real activations: {}.", about);
  say("Machine: {}.", machine);

  const std::vector<Study> studies = run_studies(data, options, threads);
  const SettingsOutcome settings = calibrate_settings(data.path(), metadata_or(data, "model", ""), kTarget, threads);
  const auto write = [&](const char* name, const std::string& text) {
    write_file(folder / name, text);
    return (folder / name).string();
  };
  say("\n{}:\n{}", write("longhaul.yaml", settings.longhaul_yaml), settings.longhaul_yaml);
  say("{}:\n{}", write("trtllm.yaml", settings.trtllm_yaml), settings.trtllm_yaml);
  const std::string subtitle = fmt::format("{} reading {}, {} tokens", metadata_or(data, "model", "a model"),
                                           metadata_or(data, "text", "a text"), data.tokens());
  const std::string picture = write("skipping.svg", demo_picture(studies, subtitle, {about + ".", machine + "."}));
  say("picture: {}", picture);

  Json json = result_header(invocation.command_line);
  json["data"] = about;
  json["rows"] = order_rows(studies[0], about);
  json["prefill"] = study_json(studies[0]);
  json["decode"] = study_json(studies[1]);
  json["settings"] = settings.json;
  json["picture"] = picture;
  write_json(invocation.json, json);
  return kFine;
}

}  // namespace

void add_demo(CLI::App& program, Invocation& invocation) {
  auto* command = program.add_subcommand(
      "demo", "See what skipping earns and costs on a real model's activations\n\nAbout a minute on two cores.");
  auto options = std::make_shared<DemoOptions>();
  command
      ->add_option("--data", options->data,
                   "Captured activations: a .safetensors file with layer.N.query, layer.N.key, layer.N.value, or a "
                   "folder of such "
                   "files (default: those that come with the program)")
      ->type_name("PATH")
      ->check(path_of("file or folder"));
  command->add_option("--out", options->out, "Folder for the picture and the settings")
      ->type_name("DIR")
      ->check(path_of("folder"))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Timed rounds of the prefill")
      ->transform(whole_number(1, 1000))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads (0: LONGHAUL_THREADS, or all cores)")
      ->transform(whole_number(0, 1024));
  finish_command(*command, invocation,
                 "  longhaul demo\n  longhaul demo --data my_model.safetensors --out results --json results/demo.json",
                 [&invocation, options] { return run_demo(invocation, *options); });
}

}  // namespace longhaul::cli
