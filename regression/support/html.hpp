// SPDX-License-Identifier: BSD-3-Clause
// Checks of HTML pages: well-formed markup, no reference to other files, and the data of their scripts.
#pragma once

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "regression/support/testing.hpp"
#include "src/base/json.hpp"

namespace gyr::testing {

// Every element that begins ends, in the right order. Scripts and styles are no markup.
inline void expect_well_formed(const std::string& html) {
  static const std::regex tag("<(/?)([a-zA-Z][a-zA-Z0-9]*)([^<>]*)>");
  static const std::set<std::string> empty{"meta", "input", "br"};
  std::string markup;
  for (std::size_t at = 0; at < html.size();) {  // std::regex would need a stack frame per character
    const std::size_t begin = std::min({html.find("<script", at), html.find("<style", at), html.size()});
    markup += html.substr(at, begin - at);
    if (begin == html.size()) break;
    const std::string end = html.compare(begin, 7, "<script") == 0 ? "</script>" : "</style>";
    ASSERT_NE(html.find(end, begin), std::string::npos);
    at = html.find(end, begin) + end.size();
  }
  std::vector<std::string> open;
  for (std::sregex_iterator match(markup.begin(), markup.end(), tag), last; match != last; ++match) {
    const std::string name = (*match)[2], rest = (*match)[3];
    if (empty.contains(name) || rest.ends_with("/")) continue;
    if ((*match)[1].length() == 0) open.push_back(name);
    else {
      ASSERT_FALSE(open.empty()) << "</" << name << ">";
      ASSERT_EQ(open.back(), name) << "before ..." << markup.substr(std::size_t(match->position()), 80);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
  for (std::size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1))
    EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(markup[at + 1])) || markup[at + 1] == '/' || markup[at + 1] == '!') << markup.substr(at, 40);
}

// References to other files, or code of the texts.
inline void expect_self_contained(const std::string& html) {
  for (const char* reference : {"src=", "@import", "url(", "<link", "<img", "https://", "<iframe"}) {
    const std::size_t at = html.find(reference);
    EXPECT_EQ(at, std::string::npos) << html.substr(at < 60 ? 0 : at - 60, 160);
  }
  for (std::size_t at = html.find("href=\""); at != std::string::npos; at = html.find("href=\"", at + 1))
    EXPECT_EQ(html[at + 6], '#') << html.substr(at, 40);
}

inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The data of the page's scripts.
inline Json data_of(const std::string& html) {
  const std::string begin = "id=\"numbers\">";
  const std::size_t from = html.find(begin) + begin.size();
  return Json::parse(html.substr(from, html.find("</script>", from) - from));
}

}  // namespace gyr::testing
