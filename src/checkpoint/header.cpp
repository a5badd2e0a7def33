// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/header.hpp"

#include <time.h>

#include <algorithm>

#include "src/report/build_facts.hpp"

namespace gyr {

namespace {

std::string time_of_creation() {
  const time_t seconds = time(nullptr);
  tm utc;
  gmtime_r(&seconds, &utc);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

std::string path_of(Content content, const std::string& weight_name) {
  std::string path = weight_name.starts_with("model.") ? weight_name.substr(6) : weight_name;
  std::replace(path.begin(), path.end(), '.', '/');
  switch (content.kind) {
    case Content::Kind::weight: return "/model/" + path;
    case Content::Kind::state: return fmt::format("/optimizer/{}/{}", content.name, path);
    case Content::Kind::master: return "/optimizer/master/" + path;
    case Content::Kind::gradient: return "/gradients/" + path;
    case Content::Kind::activation: return "/activations/" + path;
  }
  return {};
}

CheckpointHeader stamped(CheckpointHeader h) {
  h.version = checkpoint_version;
  h.writer = "gyrfalcon " + gyr::version();
  h.created = time_of_creation();
  return h;
}

CheckpointHeader stamped(CheckpointHeader h, DType precision, const Layout& layout) {
  h = stamped(std::move(h));
  h.precision = name_of(precision);
  h.world = layout.ranks();
  h.layout.clear();
  for (const LayoutAxis& axis : layout.axes) h.layout += fmt::format("{}{}={}", h.layout.empty() ? "" : " ", name_of(axis.axis), axis.size);
  return h;
}

void write_header(hdf5::File& file, const CheckpointHeader& h, const std::string& format) {
  file.set("format", format);
  file.set("format_version", h.version);
  file.set("writer", h.writer);
  file.set("created_utc", h.created);
  file.set("step", h.step);
  file.set("tokens_seen", h.tokens);
  file.set("samples_seen", h.samples);
  file.set("seed", h.seed);
  file.set("precision", h.precision);
  file.set("world", h.world);
  file.set("layout", h.layout);
  file.set("deck", h.deck);
  file.set("provenance", h.provenance);
  if (!h.run.empty()) file.set("run", h.run);
}

CheckpointHeader read_header(const hdf5::File& file) {
  require(file.has("format") && file.text("format") == checkpoint_format, Exit::data, "{}: is not a checkpoint of gyrfalcon", file.name());
  CheckpointHeader h;
  h.version = file.text("format_version");
  const std::string major = h.version.substr(0, h.version.find('.'));
  require(major == "1", Exit::data, "{}: has format version {}, and this program reads 1.x and 2.x; use a newer gyrfalcon", file.name(), h.version);
  require(file.has("complete"), Exit::data, "{}: was never finished; use another checkpoint", file.name());
  h.writer = file.text("writer");
  h.created = file.text("created_utc");
  h.step = file.number<std::int64_t>("step");
  h.tokens = file.number<std::int64_t>("tokens_seen");
  h.samples = file.number<std::int64_t>("samples_seen");
  h.seed = file.number<std::uint64_t>("seed");
  h.precision = file.text("precision");
  h.world = file.number<std::int64_t>("world");
  h.layout = file.text("layout");
  h.deck = file.text("deck");
  h.provenance = file.text("provenance");
  check_header(h, file.name());
  return h;
}

void check_header(const CheckpointHeader& h, const std::string& origin) {
  require(h.step >= 0 && h.tokens >= 0 && h.samples >= 0, Exit::data, "{}: step, tokens_seen and samples_seen cannot be negative", origin);
}

}  // namespace gyr
