// Line charts as SVG: panels side by side, each with its own axes and legend.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace longhaul::cli {

struct Series {
  std::string name, color;  ///< color as "#rrggbb"
  std::vector<std::pair<double, double>> points;
  bool dashed = false;
  bool markers = true;
  bool hollow = false;  ///< markers without filling
};

struct Axis {
  std::string label;
  double low = 0, high = 1;
  std::vector<double> ticks;
  std::vector<std::string> tick_labels;  ///< parallel to ticks
  bool logarithmic = false;
};

struct Panel {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};

struct Figure {
  std::string title, subtitle;
  std::vector<Panel> panels;
  std::vector<std::string> notes;  ///< small lines at the foot
};

std::string to_svg(const Figure& figure);

/// Ticks at 1 x 10^n (and their labels) that lie within or just around [low, high]; widens the axis to them.
void set_decades(Axis& axis, double low, double high);

}  // namespace longhaul::cli
