// SPDX-License-Identifier: BSD-3-Clause
// Filters, with the results of Jinja's built-in ones and of transformers' tojson.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/jinja/value.hpp"

namespace gyr::jinja {

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);
using FilterTable = std::map<std::string_view, Filter>;

FilterTable text_filters();       // text_filters.cpp
FilterTable sequence_filters();   // sequence_filters.cpp
FilterTable number_filters();     // number_filters.cpp
FilterTable selection_filters();  // selection_filters.cpp

// The filter of this name. Problem if there is none.
Filter filter_named(const std::string& name);
// Message about a name that is no supported filter; empty if it is one.
std::string why_no_filter(const std::string& name);

}  // namespace gyr::jinja
