// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/rollout_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "src/base/output_file.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/hdf5/file.hpp"

namespace gyr {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

template <class V>
void write(hdf5::File& file, const char* name, const std::vector<V>& values, Index columns = 1) {
  if (values.empty()) return;
  const Index rows = Index(values.size()) / columns;
  hdf5::Dataset to = file.create_dataset(name, dtype_of<V>(), columns > 1 ? Shape{rows, columns} : Shape{rows});
  to.write_rows(0, rows, values.data());
}

template <class V>
std::vector<V> read(const hdf5::File& file, const char* name, const std::filesystem::path& path) {
  const std::vector<std::string> there = file.datasets();
  if (std::none_of(there.begin(), there.end(), [&](const std::string& path) { return path == name || path == "/" + std::string(name); })) return {};
  const hdf5::Dataset from = file.dataset(name);
  require(from.dtype() == dtype_of<V>() && !from.shape().empty(), Exit::data, "{}: dataset {} has another type; it was not written by this program",
          path.string(), name);
  Index elements = 1;
  for (const Index extent : from.shape()) elements *= extent;
  std::vector<V> values(static_cast<std::size_t>(elements));
  if (elements > 0) from.read_rows(0, from.shape()[0], values.data());
  return values;
}

// The last bytes of the file, behind what HDF5 reads: a mark, and the checksum of everything before it. The HDF5 library may crash on damaged
// metadata.
struct Trailer {
  static constexpr std::array<char, 8> expected{'G', 'Y', 'R', ' ', 'S', 'U', 'M', '1'};
  std::array<char, 8> mark = expected;
  std::uint64_t sum = 0;
};

void append_trailer(const std::filesystem::path& path) {
  const Trailer trailer{.sum = SummedFile(path).sum()};
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(reinterpret_cast<const char*>(&trailer), sizeof trailer);
  file.close();
  require(bool(file), Exit::io, "{}: writing failed; is the disk full?", path.string());
}

// Exit::data unless the file ends with its checksum.
void check_trailer(const std::filesystem::path& path) {
  const InputFile file(path);
  const std::int64_t size = file.size() - std::int64_t(sizeof(Trailer));
  Trailer trailer;
  if (size >= 0) file.read(size, reinterpret_cast<char*>(&trailer), sizeof trailer);
  require(size >= 0 && trailer.mark == Trailer::expected, Exit::data,
          "{}: does not end with a checksum, so it is incomplete, damaged or of another program; restore it, or resume from a checkpoint at the end "
          "of an iteration",
          path.string());
  const hdf5::Extent before{0, size};
  require(SummedFile(path).sum(std::span(&before, 1)) == trailer.sum, Exit::data,
          "{}: its checksum differs from the one that was written, so the file is damaged; restore it, or resume from a checkpoint at the end of an "
          "iteration",
          path.string());
}

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, "\n")); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

// Arrays of all rollouts, one after the other.
struct Columns {
  std::vector<std::int64_t> prompt, offset{0};
  std::vector<std::int32_t> sample, begin, end, tokens;
  std::vector<double> said, old, reference, values, reward, rewards;

  void add(const Rollout& r) {
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    prompt.push_back(r.prompt), sample.push_back(std::int32_t(r.sample)), begin.push_back(std::int32_t(r.begin));
    end.push_back(std::int32_t(r.end)), reward.push_back(r.reward.value_or(none));
    append(tokens, r.tokens), append(said, r.said), append(old, r.old), append(reference, r.reference), append(values, r.values);
    for (const auto& part : r.rewards) rewards.push_back(part.value_or(none));
    offset.push_back(std::int64_t(tokens.size()));
  }

  // True if all arrays have the lengths that B answers with R rewards need.
  bool fits(std::size_t rewards_each) const {
    const std::size_t B = prompt.size();
    if (offset.size() != B + 1 || sample.size() != B || begin.size() != B || end.size() != B || reward.size() != B ||
        rewards.size() != B * rewards_each || offset.front() != 0 || offset.back() != std::int64_t(tokens.size()))
      return false;
    std::size_t answers = 0;
    for (std::size_t i = 0; i < B; ++i) {
      const std::int64_t length = offset[i + 1] - offset[i];
      if (begin[i] < 1 || begin[i] >= length || end[i] < 0 || end[i] > int(TextEnd::length)) return false;
      answers += std::size_t(length - begin[i]);
    }
    return said.size() == answers && (old.empty() || old.size() == answers) && (reference.empty() || reference.size() == answers) &&
           (values.empty() || values.size() == answers + B);
  }

  Rollout rollout(std::size_t i, std::size_t answer, std::size_t rewards_each) const {
    Rollout r{.prompt = prompt[i], .sample = sample[i]};
    r.tokens.assign(tokens.begin() + offset[i], tokens.begin() + offset[i + 1]);
    r.begin = begin[i], r.end = TextEnd(end[i]);
    const auto part = [&](const std::vector<double>& all) {
      return all.empty() ? std::vector<double>() : std::vector<double>(all.begin() + answer, all.begin() + answer + r.length());
    };
    r.said = part(said), r.old = part(old), r.reference = part(reference);
    if (const auto first = values.begin() + std::ptrdiff_t(answer + i); !values.empty()) r.values.assign(first, first + r.length() + 1);
    const auto given = [](double value) { return std::isnan(value) ? std::nullopt : std::optional(value); };
    r.reward = given(reward[i]);
    for (std::size_t k = 0; k < rewards_each; ++k) r.rewards.push_back(given(rewards[i * rewards_each + k]));
    return r;
  }
};

}  // namespace

std::filesystem::path rollout_path(const std::filesystem::path& output, std::int64_t iteration) {
  return output / "rollouts" / fmt::format("iteration_{:08}.h5", iteration);
}

std::filesystem::path ahead_path(const std::filesystem::path& output, std::int64_t iteration) {
  return output / "rollouts" / fmt::format("ahead_{:08}.h5", iteration);
}

void write_rollouts(const std::filesystem::path& path, const Rollouts& rollouts) {
  Columns all;
  for (const Rollout& r : rollouts.all) all.add(r);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  require(!error, Exit::io, "{}: cannot be created: {}", path.parent_path().string(), error.message());
  const std::filesystem::path temporary = OutputFile::temporary(path);
  hdf5::File file = hdf5::File::create(temporary);
  file.set("iteration", rollouts.iteration), file.set("version", rollouts.version);
  file.set("next_prompt", rollouts.next_prompt), file.set("kl_coefficient", fmt::format("{}", rollouts.kl_coefficient));
  file.set("group", std::int64_t(rollouts.group)), file.set("reward_names", joined(rollouts.reward_names));
  write(file, "prompt", all.prompt), write(file, "sample", all.sample), write(file, "begin", all.begin), write(file, "end", all.end);
  write(file, "offset", all.offset), write(file, "tokens", all.tokens);
  write(file, "said", all.said), write(file, "old", all.old), write(file, "reference", all.reference);
  write(file, "values", all.values);
  write(file, "reward", all.reward), write(file, "rewards", all.rewards, Index(rollouts.reward_names.size()));
  file.close();
  append_trailer(temporary);
  sync_file(temporary);
  std::error_code failed;
  std::filesystem::rename(temporary, path, failed);
  require(!failed, Exit::io, "{}: cannot be renamed to {}: {}", temporary.string(), path.string(), failed.message());
  sync_folder(path.parent_path());
}

Rollouts read_rollouts(const std::filesystem::path& path) {
  check_trailer(path);
  const hdf5::File file = hdf5::File::open(path);
  Rollouts rollouts;
  rollouts.iteration = file.number<std::int64_t>("iteration"), rollouts.version = file.number<std::int64_t>("version");
  rollouts.group = file.number<std::int64_t>("group"), rollouts.reward_names = split(file.text("reward_names"));
  if (file.has("next_prompt")) rollouts.next_prompt = file.number<std::int64_t>("next_prompt");  // older files lack both
  if (file.has("kl_coefficient")) rollouts.kl_coefficient = std::strtod(file.text("kl_coefficient").c_str(), nullptr);
  Columns all;
  all.prompt = read<std::int64_t>(file, "prompt", path), all.offset = read<std::int64_t>(file, "offset", path);
  for (auto [column, name] : {std::pair(&all.sample, "sample"), {&all.begin, "begin"}, {&all.end, "end"}, {&all.tokens, "tokens"}})
    *column = read<std::int32_t>(file, name, path);
  for (auto [column, name] : {std::pair(&all.said, "said"),
                              {&all.old, "old"},
                              {&all.reference, "reference"},
                              {&all.values, "values"},
                              {&all.reward, "reward"},
                              {&all.rewards, "rewards"}})
    *column = read<double>(file, name, path);
  const std::size_t rewards_each = rollouts.reward_names.size();
  require(all.fits(rewards_each) && rollouts.group > 0 && Index(all.prompt.size()) % rollouts.group == 0, Exit::data,
          "{}: its arrays contradict each other; the file is damaged. Resume from a checkpoint at the end of an iteration", path.string());
  std::size_t answer = 0;
  for (std::size_t i = 0; i < all.prompt.size(); ++i) {
    rollouts.all.push_back(all.rollout(i, answer, rewards_each));
    answer += std::size_t(rollouts.all.back().length());
  }
  return rollouts;
}

}  // namespace gyr
