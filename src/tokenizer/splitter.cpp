// SPDX-License-Identifier: BSD-3-Clause
// Pre-tokenizer: splits text into pieces, step by step.
#include "src/tokenizer/splitter.hpp"

#include <algorithm>
#include <utility>

#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/characters.hpp"

namespace gyr {
namespace {

using By = SplitStep::By;
using Behavior = SplitStep::Behavior;

// Calls visit(begin, end, found) for each character of the class and for each text between two of them.
template <class Is, class Visit>
void visit_characters(std::string_view subject, Is&& is, Visit&& visit) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < subject.size();) {
    const auto [c, length] = character_at(subject, i);
    if (is(c)) {
      if (done < i) visit(done, i, false);
      visit(i, i + length, true);
      done = i + length;
    }
    i += length;
  }
  if (done < subject.size()) visit(done, subject.size(), false);
}

// Combines the adjacent segments of one piece into pieces, according to `behavior`. Empty segments take part, but give
// no piece.
template <class Stretch>
void join(std::vector<Stretch>& stretches, Behavior behavior, std::vector<Splitter::Piece>& pieces) {
  const auto first = pieces.size();
  bool found_before = false;
  const auto add = [&](const Stretch& s, bool joins) {
    if (joins && pieces.size() > first) {
      pieces.back().begin = std::min(pieces.back().begin, s.begin);
      pieces.back().end = std::max(pieces.back().end, s.end);
    } else {
      pieces.push_back({s.begin, s.end});
    }
    found_before = s.found;
  };
  if (behavior == Behavior::merged_with_next) {
    for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) add(*s, s->found && !found_before);
    std::reverse(pieces.begin() + std::ptrdiff_t(first), pieces.end());
  } else {
    for (const Stretch& s : stretches) {
      if (behavior == Behavior::removed && s.found) continue;
      const bool joins = behavior == Behavior::contiguous             ? s.found == found_before
                         : behavior == Behavior::merged_with_previous ? s.found && !found_before
                                                                      : false;
      add(s, joins);
    }
  }
  pieces.erase(std::remove_if(pieces.begin() + std::ptrdiff_t(first), pieces.end(), [](const auto& p) { return p.begin == p.end; }), pieces.end());
}

}  // namespace

struct Splitter::Step {
  SplitStep what;
  std::optional<Pattern> pattern;
};

Splitter::Splitter(const std::vector<SplitStep>& steps) {
  for (const SplitStep& step : steps) {
    steps_.push_back({step, std::nullopt});
    if (step.by == By::pattern) steps_.back().pattern.emplace(step.pattern, step.pattern);
  }
}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

// Finds the delimiters of `step` in `subject` and stores all segments, delimiters and other text, in scratch.stretches.
void Splitter::look(const Step& step, std::string_view subject, Scratch& scratch) {
  scratch.stretches.clear();
  const auto note = [&](std::size_t begin, std::size_t end, bool found) { scratch.stretches.push_back({begin, end, found != step.what.invert}); };
  switch (step.what.by) {
    case By::pattern: return step.pattern->visit(subject, scratch.patterns, note);
    case By::number: return visit_characters(subject, is_number, note);
    case By::punctuation: return visit_characters(subject, is_punctuation, note);
    case By::white_space: return visit_characters(subject, is_white_space, note);
    case By::mark: {
      std::size_t done = 0;
      for (std::size_t at = subject.find(step.what.mark); at != subject.npos; at = subject.find(step.what.mark, done)) {
        if (done < at) note(done, at, false);
        done = at + step.what.mark.size();
        note(at, done, true);
      }
      if (done < subject.size()) note(done, subject.size(), false);
      return;
    }
    case By::space: break;
  }
}

// As look(), but on the byte-alphabet spelling of `subject`. Positions are converted to bytes of `subject`; each letter
// is one byte.
void Splitter::look_at_letters(const Step& step, std::string_view subject, Scratch& scratch) {
  scratch.letters = to_letters(subject);
  look(step, scratch.letters, scratch);
  std::size_t at = 0, bytes = 0;
  for (auto& stretch : scratch.stretches) {
    stretch.begin = bytes;
    for (; at < stretch.end; ++at) bytes += (static_cast<unsigned char>(scratch.letters[at]) & 0xc0) != 0x80;
    stretch.end = bytes;
  }
}

void Splitter::put_spaces(Scratch& scratch, TextPosition position) {
  std::string text;
  text.reserve(scratch.text.size() + scratch.pieces.size());
  for (Piece& piece : scratch.pieces) {
    const std::size_t begin = text.size();
    const bool continues = piece.begin == 0 && position == TextPosition::after_text;
    if (scratch.text[piece.begin] != ' ' && !continues) text += ' ';
    text += scratch.text.substr(piece.begin, piece.end - piece.begin);
    piece = {begin, text.size()};
  }
  scratch.with_spaces = std::move(text);
  scratch.text = scratch.with_spaces;
}

void Splitter::put_marks(const SplitStep& step, Scratch& scratch, TextPosition position) {
  const auto has_mark_before = [&](const Piece& piece) {
    if (piece.begin > 0) return step.before == SplitStep::Before::all;
    return position == TextPosition::begin ? step.before != SplitStep::Before::none
                                           : step.before == SplitStep::Before::all && position == TextPosition::after_token;
  };
  std::string text;
  text.reserve(scratch.text.size() + step.mark.size() * (1 + scratch.pieces.size()));
  for (Piece& piece : scratch.pieces) {
    const std::size_t begin = text.size();
    const std::string_view from = scratch.text.substr(piece.begin, piece.end - piece.begin);
    if (has_mark_before(piece) && from[0] != ' ' && !from.starts_with(step.mark)) text += step.mark;
    for (const char c : from)
      if (c == ' ') text += step.mark;
      else text += c;
    piece = {begin, text.size()};
  }
  scratch.with_spaces = std::move(text);
  scratch.text = scratch.with_spaces;
}

void Splitter::split(std::string_view text, Scratch& scratch, TextPosition position) const {
  scratch.text = text;
  scratch.pieces.clear();
  if (text.empty()) return;
  scratch.pieces.push_back({0, text.size()});
  if (steps_.empty()) return;
  scratch.older = with_stand_ins(text);
  scratch.patterns.allow(text.size());
  for (const Step& step : steps_) {
    if (step.what.by == By::space) {
      put_spaces(scratch, position);
      scratch.older = with_stand_ins(scratch.text);
      continue;
    }
    if (step.what.by == By::mark) {
      put_marks(step.what, scratch, position);
      scratch.older = with_stand_ins(scratch.text);
      if (!step.what.split_before_marks) continue;
    }
    const bool older = step.what.by == By::pattern && !step.what.on_letters && scratch.older;
    const std::string_view subject = older ? std::string_view(*scratch.older) : scratch.text;
    scratch.next.clear();
    for (const Piece& piece : scratch.pieces) {
      const std::string_view part = subject.substr(piece.begin, piece.end - piece.begin);
      if (step.what.on_letters) {
        look_at_letters(step, part, scratch);
      } else {
        look(step, part, scratch);
      }
      for (auto& stretch : scratch.stretches) stretch.begin += piece.begin, stretch.end += piece.begin;
      join(scratch.stretches, step.what.behavior, scratch.next);
    }
    scratch.pieces.swap(scratch.next);
  }
}

}  // namespace gyr
