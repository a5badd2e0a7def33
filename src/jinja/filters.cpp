// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/filters.hpp"

#include <algorithm>

#include "src/jinja/problem.hpp"

namespace gyr::jinja {

namespace {

const FilterTable& all_filters() {
  static const FilterTable all = [] {
    FilterTable table = text_filters();
    for (const auto& filters : {sequence_filters(), number_filters(), selection_filters()}) table.insert(filters.begin(), filters.end());
    return table;
  }();
  return all;
}

}  // namespace

std::string why_no_filter(const std::string& name) {
  if (all_filters().contains(name)) return "";
  static constexpr const char* unsupported[] = {"center",   "filesizeformat", "groupby", "pprint",    "random",   "striptags",
                                                "truncate", "urlencode",      "urlize",  "wordcount", "wordwrap", "xmlattr"};
  const bool known = std::any_of(std::begin(unsupported), std::end(unsupported), [&](const char* other) { return name == other; });
  return known ? fmt::format("the filter '{}' is not supported", name) : fmt::format("there is no filter '{}'", name);
}

Filter filter_named(const std::string& name) {
  const auto filter = all_filters().find(name);
  if (filter == all_filters().end()) refuse("{}", why_no_filter(name));
  return filter->second;
}

}  // namespace gyr::jinja
