#include "cli/support/svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace longhaul::cli {
namespace {

constexpr double kPanelWidth = 560, kPanelHeight = 470, kMargin = 28;
constexpr double kHead = 86;                                                        // title and subtitle
constexpr double kPlotLeft = 84, kPlotRight = 20, kPlotTop = 92, kPlotBottom = 58;  // within a panel
constexpr double kNoteLine = 17;
constexpr const char* kInk = "#1f2933";
constexpr const char* kMuted = "#616e7c";
constexpr const char* kGrid = "#e4e7eb";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, const std::string& text, double size, const char* color,
                    const char* anchor = "start", const char* more = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" fill="{}" text-anchor="{}" {}>{}</text>)"
                     "\n",
                     x, y, size, color, anchor, more, escaped(text));
}

std::string line_at(double x1, double y1, double x2, double y2, const char* color) {
  return fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)"
                     "\n",
                     x1, y1, x2, y2, color);
}

double share_of(const Axis& axis, double value) {
  if (!axis.logarithmic) return (value - axis.low) / (axis.high - axis.low);
  return (std::log(value) - std::log(axis.low)) / (std::log(axis.high) - std::log(axis.low));
}

class PanelWriter {
 public:
  PanelWriter(const Panel& panel, double left, double top) : panel_(panel), left_(left), top_(top) {}

  std::string text() const {
    return text_at(left_ + kPlotLeft, top_ + 22, panel_.title, 16, kInk, "start", R"(font-weight="600")") + legend() +
           axes() + all_series();
  }

 private:
  double x_of(double value) const {
    return left_ + kPlotLeft + share_of(panel_.x, value) * (kPanelWidth - kPlotLeft - kPlotRight);
  }
  double y_of(double value) const {
    return top_ + kPanelHeight - kPlotBottom - share_of(panel_.y, value) * (kPanelHeight - kPlotTop - kPlotBottom);
  }

  // Two entries a row, below the title.
  std::string legend() const {
    std::string out;
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      const Series& series = panel_.series[i];
      const size_t row = i / 2, column = i % 2;
      const double x = left_ + kPlotLeft + 250.0 * static_cast<double>(column);
      const double y = top_ + 44 + 19.0 * static_cast<double>(row);
      out += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="2.2" {}/>)"
                         "\n",
                         x, y - 4, x + 26, y - 4, series.color, series.dashed ? R"(stroke-dasharray="6 4")" : "");
      if (series.markers) out += marker(series, x + 13, y - 4);
      out += text_at(x + 33, y, series.name, 13, kInk);
    }
    return out;
  }

  std::string axes() const {
    std::string out;
    const double bottom = top_ + kPanelHeight - kPlotBottom, left = left_ + kPlotLeft,
                 right = left_ + kPanelWidth - kPlotRight;
    for (size_t i = 0; i < panel_.y.ticks.size(); ++i) {
      const double y = y_of(panel_.y.ticks[i]);
      out += line_at(left, y, right, y, kGrid) + text_at(left - 9, y + 4.5, panel_.y.tick_labels[i], 13, kMuted, "end");
    }
    for (size_t i = 0; i < panel_.x.ticks.size(); ++i) {
      const double x = x_of(panel_.x.ticks[i]);
      out += line_at(x, bottom, x, bottom + 5, kMuted) +
             text_at(x, bottom + 21, panel_.x.tick_labels[i], 13, kMuted, "middle");
    }
    out += line_at(left, bottom, right, bottom, kMuted);
    out += text_at((left + right) / 2, bottom + 44, panel_.x.label, 13.5, kInk, "middle");
    const double y = (top_ + kPlotTop + bottom) / 2, x = left_ + 16;
    out += text_at(x, y, panel_.y.label, 13.5, kInk, "middle",
                   fmt::format(R"x(transform="rotate(-90 {:.1f} {:.1f})")x", x, y).c_str());
    return out;
  }

  static std::string marker(const Series& series, double x, double y) {
    return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}" stroke="{}" stroke-width="1.8"/>)"
                       "\n",
                       x, y, series.hollow ? "#ffffff" : series.color, series.color);
  }

  // Points outside the axes are left out: a logarithmic axis has no zero.
  std::string all_series() const {
    std::string out;
    for (const Series& series : panel_.series) {
      std::string path, markers;
      for (const auto& [x, y] : series.points) {
        if (!(x >= panel_.x.low && x <= panel_.x.high && y >= panel_.y.low && y <= panel_.y.high)) continue;
        path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", x_of(x), y_of(y));
        if (series.markers) markers += marker(series, x_of(x), y_of(y));
      }
      out += fmt::format(R"(<path d="{}" fill="none" stroke="{}" stroke-width="2.2" stroke-linejoin="round" {}/>)"
                         "\n",
                         path, series.color, series.dashed ? R"(stroke-dasharray="6 4")" : "");
      out += markers;
    }
    return out;
  }

  const Panel& panel_;
  double left_, top_;
};

}  // namespace

namespace {

// Lines of at most so many characters, broken between words.
std::vector<std::string> wrapped(const std::vector<std::string>& texts, size_t columns) {
  std::vector<std::string> lines;
  for (std::string text : texts) {
    while (text.size() > columns) {
      const size_t space = text.rfind(' ', columns);
      if (space == std::string::npos) break;
      lines.push_back(text.substr(0, space));
      text.erase(0, space + 1);
    }
    lines.push_back(text);
  }
  return lines;
}

}  // namespace

std::string to_svg(const Figure& figure) {
  const double width = 2 * kMargin + kPanelWidth * static_cast<double>(figure.panels.size());
  constexpr double kCharacterWidth = 6.7;  // of the widest of the fonts, at the notes' size
  const std::vector<std::string> notes =
      wrapped(figure.notes, static_cast<size_t>((width - 3 * kMargin) / kCharacterWidth));
  const double height = kHead + kPanelHeight + kNoteLine * static_cast<double>(notes.size()) + kMargin;
  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="Inter, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif">)"
      "\n<title>{2}</title>\n"
      R"(<rect width="100%" height="100%" fill="#ffffff"/>)"
      "\n",
      width, height, escaped(figure.title));
  out += text_at(kMargin + 10, 42, figure.title, 21, kInk, "start", R"(font-weight="600")");
  out += text_at(kMargin + 10, 66, figure.subtitle, 14, kMuted);
  for (size_t i = 0; i < figure.panels.size(); ++i)
    out += PanelWriter(figure.panels[i], kMargin + kPanelWidth * static_cast<double>(i), kHead).text();
  for (size_t i = 0; i < notes.size(); ++i)
    out += text_at(kMargin + 10, kHead + kPanelHeight + 14 + kNoteLine * static_cast<double>(i), notes[i], 12, kMuted);
  return out + "</svg>\n";
}

void set_decades(Axis& axis, double low, double high) {
  axis.logarithmic = true;
  const int first = static_cast<int>(std::floor(std::log10(low))), last = static_cast<int>(std::ceil(std::log10(high)));
  axis.low = std::pow(10.0, first);
  axis.high = std::pow(10.0, std::max(last, first + 1));
  axis.ticks.clear();
  axis.tick_labels.clear();
  for (int n = first; n <= std::max(last, first + 1); ++n) {
    axis.ticks.push_back(std::pow(10.0, n));
    axis.tick_labels.push_back(n >= -4 && n <= 3 ? fmt::format("{:g}", std::pow(10.0, n)) : fmt::format("1e{}", n));
  }
}

}  // namespace longhaul::cli
