#include "cli/demo/picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/attention_flags.h"
#include "cli/support/svg_plot.h"

namespace longhaul::cli {
namespace {

// Colours that stay apart for the colour-blind (Okabe and Ito).
constexpr const char* kPrefillColor = "#0072b2";
constexpr const char* kDecodeColor = "#d55e00";
constexpr const char* kIdealColor = "#9aa5b1";

const char* color_of(const Study& study) { return study.phase == Phase::decode ? kDecodeColor : kPrefillColor; }

Axis sparsity_axis() {
  Axis axis{"sparsity: scores whose softmax and P·V are skipped", 0, 1, {}, {}, false};
  for (int i = 0; i <= 5; ++i) {
    axis.ticks.push_back(i / 5.0);
    axis.tick_labels.push_back(fmt::format("{} %", 20 * i));
  }
  return axis;
}

Panel speed_panel(const std::vector<Study>& studies) {
  Panel panel{"What it earns", sparsity_axis(), {"speed-up over the dense kernel", 0.8, 2, {}, {}, false}, {}};
  double top = 2.0;
  Series ideal{"ideal, 1/(1 − s/2)", kIdealColor, {}, true, false};
  for (int i = 0; i <= 100; ++i) ideal.points.emplace_back(i / 100.0, 1 / (1 - i / 200.0));
  panel.series.push_back(ideal);
  for (const Study& study : studies) {
    Series series{phase_name(study.phase), color_of(study), {}, false, true};
    for (const StudyRow& row : study.rows)
      if (row.lambda) {
        series.points.emplace_back(row.sparsity, row.speedup);
        top = std::max(top, row.speedup);
      }
    panel.series.push_back(series);
  }
  panel.y.high = std::ceil(top * 5) / 5;
  for (int fifths = 4; fifths < 5 * panel.y.high + 0.05; ++fifths) {
    const double tick = fifths / 5.0;
    panel.y.ticks.push_back(tick);
    panel.y.tick_labels.push_back(fmt::format("{:.1f} ×", tick));
  }
  return panel;
}

Panel error_panel(const std::vector<Study>& studies) {
  Panel panel{"What it costs", sparsity_axis(), {"relative error of the attention output", 0, 1, {}, {}, true}, {}};
  double low = INFINITY, high = 0;
  const auto add = [&](Series& series, double s, double error) {
    if (!(error > 0)) return;
    series.points.emplace_back(s, error);
    low = std::min(low, error);
    high = std::max(high, error);
  };
  for (const Study& study : studies) {
    Series own{phase_name(study.phase) + ", Longhaul", color_of(study), {}, false, true};
    Series published{phase_name(study.phase) + ", published order", color_of(study), {}, true, true, true};
    for (const StudyRow& row : study.rows)
      if (row.lambda) add(own, row.sparsity, row.error.relative_rms);
    for (const CurvePoint& point : study.published_curve) add(published, point.sparsity, point.error);
    panel.series.push_back(own);
    panel.series.push_back(published);
  }
  set_decades(panel.y, std::max(low, 1e-4), std::max(high, 1e-3));
  return panel;
}

}  // namespace

std::string demo_picture(const std::vector<Study>& studies, const std::string& subtitle,
                         const std::vector<std::string>& notes) {
  return to_svg({"Attention that skips: what it earns and what it costs",
                 subtitle,
                 {speed_panel(studies), error_panel(studies)},
                 notes});
}

}  // namespace longhaul::cli
