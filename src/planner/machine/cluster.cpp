// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/cluster.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "src/base/limits.hpp"
#include "src/deck/bundled_files.hpp"

namespace gyr {

namespace {

constexpr double giga = 1e9, tera = 1e12, milli = 1e-3, micro = 1e-6, gibi = double(1 << 30);
constexpr double most = 1e9;  // upper bound of every value, in the unit of its key

// Reads one link class. `usual` holds the defaults; null: the bandwidth is required.
Link read_link(Section& links, const char* name, const char* help, const Link* usual) {
  Section& s = links.section(name, help);
  const char *const of_bandwidth = "bandwidth per device in one direction, with the other devices busy too", *const key = "bandwidth";
  Link link;
  link.latency = micro * s.get("latency", usual ? usual->latency / micro : 0.0, "latency of a message").unit("us").at_least(0).at_most(most).value();
  auto bandwidth = usual ? s.get(key, usual->bandwidth / giga, of_bandwidth) : s.need<double>(key, of_bandwidth);
  link.assumed = usual && !s.given(key);
  link.bandwidth = giga * bandwidth.unit("GB/s").positive().at_most(most).value();
  link.sums =
      s.get("sums", usual ? usual->sums : 1.0, "fraction of the bandwidth that all-reduce and reduce-scatter reach").above(0).at_most(1).value();
  return link;
}

void read_device(Section& s, Cluster& c) {
  c.per_node = s.get("per_node", 1, "devices per node, one rank each").positive().at_most(most_axis);
  c.per_node_assumed = !s.given("per_node");
  c.device.memory = gibi * s.need<double>("memory", "memory of a device").unit("GiB").positive().at_most(most).value();
  c.device.reserve = gibi * s.get("reserve", 0.0, "memory of a device that no plan contains: CUDA context, NCCL buffers, cuBLAS")
                                .unit("GiB")
                                .at_least(0)
                                .at_most(most)
                                .value();
  c.device.gpu = s.get("gpu", c.device.gpu, "the device is a GPU: plans contain the scratch of the CUDA kernels; default: as this program was built");
  c.device.memory_bandwidth = giga * s.need<double>("memory_bandwidth", "memory bandwidth of a device").unit("GB/s").positive().at_most(most).value();
  c.device.bf16 = tera * s.need<double>("bf16", "peak bf16 GEMM rate of a device").unit("TFLOP/s").positive().at_most(most).value();
  c.device.fp32 = tera * s.need<double>("fp32", "peak fp32 GEMM rate of a device").unit("TFLOP/s").positive().at_most(most).value();
  c.device.fp64 = tera * s.need<double>("fp64", "peak fp64 GEMM rate of a device").unit("TFLOP/s").positive().at_most(most).value();
  c.device.watts = s.get("watts", 0.0, "power of a device under load; 0: unknown").unit("W").at_least(0).at_most(most).value();
  c.device.price = s.get("price", 0.0, "price of a device hour, in device.currency; 0: unknown").at_least(0).at_most(most).value();
  c.device.currency = s.get("currency", "", "currency of device.price for reports, as in EUR").value();
  c.device.fused = s.get("fused", false, "attention is fused (FlashAttention): its tiles stay on chip and use no memory bandwidth");
}

void read_host(Section& s, Cluster& c) {
  c.host.memory =
      gibi *
      s.get("memory", 0.0, "host memory per device; 0: host and device share the device's memory").unit("GiB").at_least(0).at_most(most).value();
  c.host.bandwidth =
      giga * s.get("bandwidth", 0.0, "bandwidth of copies between device and host in one direction, with the other direction busy; 0: unknown")
                 .unit("GB/s")
                 .at_least(0)
                 .at_most(most)
                 .value();
  c.host.overlaps = s.get("beside", false, "copies to and from the host overlap with computation");
}

void read_storage(Section& s, Cluster& c) {
  c.storage = giga * s.get("bandwidth", 0.0, "bandwidth at which a node writes checkpoints while all nodes write; 0: unknown")
                         .unit("GB/s")
                         .at_least(0)
                         .at_most(most)
                         .value();
}

void read_failures(Section& s, Cluster& c) {
  c.failures.hours = s.get("hours", 0.0, "mean time between failures that end a job, per device: devices x hours / failures; 0: unknown")
                         .unit("h")
                         .at_least(0)
                         .at_most(most)
                         .value();
  c.failures.restart =
      s.get("restart", 0.0, "time from a failure to the first step of the restarted job").unit("s").at_least(0).at_most(most).value();
}

void read_errors(Section& s, Cluster& c) {
  const auto error = [&](const char* key, const char* help) { return s.get(key, 0.0, help).unit("%").at_least(0).at_most(1000).value() / 100; };
  c.errors.published =
      error("published", "mean error of predicted step times on published steps of dense transformers, each left out of the fit; 0: not judged");
  c.errors.published_steps = s.get("published_steps", "", "these steps: number, program, year").value();
  c.errors.measured = error("measured", "largest error of predicted step times on steps of this program on one device; 0: not judged");
  c.errors.measured_steps = s.get("measured_steps", "", "these steps: number, models").value();
}

void read_fit(Section& s, Cluster& c) {
  const auto part = [&](const char* key, const char* help) { return s.get(key, 1.0, help).above(0).at_most(2).value(); };
  c.fit.gemms = part("products", "fraction of the peak GEMM rate that large GEMMs reach");
  c.fit.fused = part("fused", "fraction of the peak GEMM rate reached inside attention and scan kernels");
  c.fit.memory = part("memory", "fraction of the memory bandwidth that memory-bound kernels reach");
  c.fit.links = part("links", "fraction of the link bandwidth that communication reaches");
  c.fit.step =
      milli *
      s.get("step", 0.0, "fixed overhead per step that is not overlapped (data loading, host work)").unit("ms").at_least(0).at_most(most).value();
}

enum class Whose { entire_cluster, island };
Cluster read_file(const std::string& file, Whose, const std::string& named_by = "");

// Island name from the file name. A name in cluster.emulate must be unique and must not contain a comma, colon, space
// or quote.
std::string name_of(const std::string& file, const std::vector<Cluster>& clusters) {
  std::string name = std::filesystem::path(file).stem().string();
  for (char& c : name)
    if (c == ',' || c == ':' || c == ' ' || c == '"') c = '-';
  const auto taken = [&](const std::string& n) {
    return std::any_of(clusters.begin(), clusters.end(), [&](const Cluster& c) { return c.name == n; });
  };
  if (!taken(name)) return name;
  int number = 2;
  while (taken(fmt::format("{}-{}", name, number))) ++number;
  return fmt::format("{}-{}", name, number);
}

// Reads islands.files: one cluster description per island, with paths relative to this file.
void read_parts(Section& s, const std::filesystem::path& folder, Cluster& c) {
  const auto files =
      s.get("files", std::vector<std::string>{}, "one cluster description per island, in rank order, with paths relative to this file").value();
  const auto nodes = s.get("nodes", std::vector<Index>{}, "number of nodes of each island; empty: cluster.nodes of the island's cluster file")
                         .positive()
                         .at_most(most_ranks)
                         .value();
  require(nodes.empty() || nodes.size() == files.size(), Exit::config, "{}: {} node counts for {} files; give one count per file",
          s.settings_text({"nodes", "files"}), nodes.size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string file = (folder / files[i]).string();
    Cluster part = read_file(file, Whose::island, s.settings_text({"files"}));
    if (!nodes.empty()) part.nodes = nodes[i];
    require(part.nodes > 0, Exit::config, "{}: {} does not set its number of nodes; set islands.nodes here or cluster.nodes in that file",
            s.settings_text({"files"}), file);
    part.island_nodes = 0;
    part.name = name_of(files[i], c.parts);
    c.parts.push_back(std::move(part));
  }
}

// Sets the values of the combined cluster to the worst value of any island, for callers that need a single value.
void summarise(Cluster& c) {
  c.device = c.parts.front().device, c.host = c.parts.front().host, c.storage = c.parts.front().storage, c.per_node = c.parts.front().per_node,
  c.node = c.parts.front().node, c.network = c.parts.front().network;
  for (const Cluster& part : c.parts) {
    for (double Cluster::Device::*number : {&Cluster::Device::memory, &Cluster::Device::memory_bandwidth, &Cluster::Device::fp64,
                                            &Cluster::Device::fp32, &Cluster::Device::bf16, &Cluster::Device::watts})
      c.device.*number = std::min(c.device.*number, part.device.*number);
    c.device.reserve = std::max(c.device.reserve, part.device.reserve);
    c.device.gpu = c.device.gpu || part.device.gpu;
    c.storage = std::min(c.storage, part.storage);
    if (part.failures.hours > 0 && (c.failures.hours == 0 || part.failures.hours < c.failures.hours)) c.failures = part.failures;
    if (part.errors.largest() > c.errors.largest()) c.errors = part.errors;
    for (const std::string& text : part.defaults) c.defaults.push_back(part.name + ": " + text);
    c.host = {std::min(c.host.memory, part.host.memory), std::min(c.host.bandwidth, part.host.bandwidth), c.host.overlaps && part.host.overlaps};
    c.per_node = std::min(c.per_node, part.per_node);
    for (Link Cluster::*link : {&Cluster::node, &Cluster::network})
      c.*link = {std::max((c.*link).latency, (part.*link).latency), std::min((c.*link).bandwidth, (part.*link).bandwidth),
                 std::min((c.*link).sums, (part.*link).sums)};
  }
}

Cluster read(Deck& deck, const std::filesystem::path& folder, Whose whose) {
  Cluster c;
  Section& s = deck.section("cluster", "name and size of the cluster");
  c.name = s.get("name", "", "name for reports").value();
  c.nodes = s.get("nodes", 0, "number of nodes; 0: as many as the run needs").at_least(0).at_most(most_ranks);
  c.island_nodes = s.get("island_nodes", 0, "nodes per island, which share a network; 0: all nodes").at_least(0).at_most(most_ranks);
  Section& islands =
      deck.section("islands", "islands of different hardware, one file each; those files give `device`, `host`, `links.node` and `links.network`");
  if (whose == Whose::entire_cluster) read_parts(islands, folder, c);
  if (c.parts.empty()) {
    read_device(deck.section("device", "the device (GPU) of one rank"), c);
    read_host(deck.section("host", "host memory for offloaded activations (activation.policy)"), c);
    read_storage(deck.section("storage", "file system for checkpoints"), c);
    read_failures(deck.section("failures", "failures that end a job, for the useful part of the training time"), c);
    read_errors(deck.section("errors", "errors of predicted step times, which reports print as error bars"), c);
  }
  Section& links = deck.section("links", "links between devices");
  c.links_overlap = links.get("beside", true, "communication overlaps with computation and does not slow it down");
  if (!c.parts.empty()) {
    summarise(c);
    c.islands = read_link(links, "islands", "links between devices of different islands", nullptr);
    read_fit(deck.section("fit", "efficiencies fitted to measured steps"), c);
    for (const Cluster& part : c.parts) c.fit.step = std::max(c.fit.step, part.fit.step);
    require(c.nodes == 0 && c.island_nodes == 0, Exit::config, "{}: not allowed together with islands.files; set islands.nodes instead",
            deck.settings_text({"cluster.nodes", "cluster.island_nodes"}));
    return c;
  }
  c.node = read_link(links, "node", "links between devices of the same node", nullptr);
  c.network = read_link(links, "network", "links between devices of different nodes", &c.node);
  c.islands = read_link(links, "islands", "links between devices of different islands", &c.network);
  read_fit(deck.section("fit", "efficiencies fitted to measured steps"), c);
  return c;
}

// Remedy for a file that does not exist: a bundled file with this or a similar name, or the names of all of them.
std::string remedy_for(const std::string& file) {
  const std::string folder = "input/clusters", near = similar_bundled_file(file, folder);
  if (!near.empty()) return near;
  const std::vector<std::string> names = bundled_names(folder);
  return fmt::format("see input/clusters/ for examples{}, or write one with gyrfalcon probe",
                     names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", ")));
}

// Latencies and efficiencies that the file does not set, with their ideal defaults, as in "fit.links = 1".
std::vector<std::string> ideal_defaults(const Deck& deck) {
  std::vector<std::string> defaults;
  for (const Declaration& d : deck.settings()) {
    const bool ideal = d.path.starts_with("fit.") || d.path == "links.node.latency" || d.path == "links.node.sums" || d.path == "links.beside";
    if (ideal && d.where.empty()) defaults.push_back(fmt::format("{} = {}", d.path, d.fallback));
  }
  return defaults;
}

// Reads a cluster or island file. The file of an island must not name islands itself: those keys are unknown there.
Cluster read_file(const std::string& file, Whose whose, const std::string& named_by) {
  std::error_code no;
  require(std::filesystem::exists(file, no), Exit::missing, "{}{}: cluster description not found; {}", named_by.empty() ? "" : named_by + ": ",
          shown(file), remedy_for(file));
  Deck deck = Deck::read(file, {}, {"description of a cluster", "sections such as device: and links:, see input/clusters/", false});
  Cluster c = [&] {
    try {
      return read(deck, std::filesystem::path(file).parent_path(), whose);
    } catch (const Error& error) {  // such as a missing key, which an unknown one may be meant for
      Deck known = Deck::describe();
      read(known, {}, whose);
      const std::string unknown = deck.unknown_to(std::move(known));
      if (unknown.empty()) throw;
      fail(error.code, "{}\n{}", error.what(), unknown);
    }
  }();
  deck.finish();
  for (std::string& text : ideal_defaults(deck)) c.defaults.push_back(std::move(text));
  return c;
}

std::string number(double x) { return fmt::format("{:.6g}", x); }

std::string link_line(const char* name, const Link& link) {
  return fmt::format("  {}: {{latency: {}, bandwidth: {}, sums: {}}}\n", name, number(link.latency / micro), number(link.bandwidth / giga),
                     number(link.sums));
}

}  // namespace

double Cluster::Device::gemm_rate(DType operands) const { return operands == DType::bf16 ? bf16 : operands == DType::f32 ? fp32 : fp64; }

void Cluster::limit_memory(double bytes) {
  device.memory = std::min(device.memory, bytes + device.reserve);
  for (Cluster& part : parts) part.limit_memory(bytes);
}

Index Cluster::devices() const {
  Index sum = nodes * per_node;
  for (const Cluster& part : parts) sum += part.devices();
  return sum;
}

Cluster::Place Cluster::place_of(Index rank) const {
  if (parts.empty()) return {island_nodes > 0 ? int(rank / per_node / island_nodes) : 0, rank / per_node};
  Place place;
  for (; std::size_t(place.island) + 1 < parts.size() && rank >= parts[std::size_t(place.island)].devices(); ++place.island) {
    rank -= parts[std::size_t(place.island)].devices();
    place.node += parts[std::size_t(place.island)].nodes;
  }
  place.node += rank / parts[std::size_t(place.island)].per_node;
  return place;
}

namespace {

// Calls visit(island, ranks on it) for each island that the first `ranks` ranks occupy.
template <class Visit>
void each_island(const Cluster& c, Index ranks, Visit&& visit) {
  if (c.parts.empty()) return visit(c, ranks);
  for (const Cluster& part : c.parts)
    if (const Index here = std::min(ranks, part.devices()); here > 0) visit(part, here), ranks -= here;
}

}  // namespace

double Cluster::peak(Index ranks, DType operands) const {
  double sum = 0;
  each_island(*this, ranks, [&](const Cluster& c, Index here) { sum += c.device.gemm_rate(operands) * double(here); });
  return sum;
}

double Cluster::watts(Index ranks) const {
  double sum = 0;
  bool known = true;
  each_island(*this, ranks, [&](const Cluster& c, Index here) {
    sum += c.device.watts * double(here);
    known = known && c.device.watts > 0;
  });
  return known ? sum : 0;
}

double Cluster::price(Index ranks) const {
  double sum = 0;
  bool known = true;
  std::string currency;
  each_island(*this, ranks, [&](const Cluster& c, Index here) {
    known = known && c.device.price > 0 && (sum == 0 || c.device.currency == currency);
    sum += c.device.price * double(here), currency = c.device.currency;
  });
  return known ? sum : 0;
}

void check_capacity(const Cluster& cluster, int ranks) {
  require(cluster.devices() == 0 || ranks <= cluster.devices(), Exit::config,
          "{} ranks do not fit on the {} devices of '{}'; use fewer ranks or increase {}", ranks, cluster.devices(), cluster.name,
          cluster.parts.empty() ? "cluster.nodes" : "islands.nodes");
}

namespace {

bool is_near(double a, double b) { return std::abs(a - b) <= 0.01 * b; }

// Remark on an NVLink bandwidth that data sheets state for both directions together; empty for other values.
std::string rate_of_both_directions(double bandwidth) {
  constexpr std::pair<double, const char*> links[] = {{600, "NVLink 3 (A100)"}, {900, "NVLink 4 (H100, H200)"}, {1800, "NVLink 5 (B200)"}};
  for (const auto& [both, name] : links)
    if (is_near(bandwidth / giga, both))
      return fmt::format("links.node.bandwidth is {:g} GB/s, which {} reaches in both directions together; write {:g}, the rate of one direction",
                         bandwidth / giga, name, both / 2);
  return "";
}

// Remark on a bf16 rate that data sheets state with 2:4 sparsity, twice the dense rate; empty for other values.
std::string rate_with_sparsity(double bf16) {
  constexpr std::pair<double, const char*> devices[] = {
      {624, "A100"}, {1979, "H100 and H200 SXM"}, {1513, "H100 PCIe"}, {1671, "H100 NVL"}, {733, "L40S"}, {4500, "B200"}, {2614.9, "MI300X"}};
  for (const auto& [sparse, name] : devices)
    if (is_near(bf16 / tera, sparse))
      return fmt::format("device.bf16 is {:g} TFLOP/s, which {} reaches with sparsity; write {:g}, the dense rate", bf16 / tera, name, sparse / 2);
  return "";
}

// Remarks on values that no single device reaches, such as those of a node.
std::vector<std::string> values_of_nodes(const Cluster& c) {
  constexpr double most_memory = 512 * gibi, most_gemm = 6e3 * tera, most_watts = 2000, longest = 1e-3, shortest = 1e-8;
  const auto divided = [&](const char* key, double value, const char* unit) {
    return fmt::format("{} is {:g} {}, more than one device has; the value of a node is divided by device.per_node ({})", key, value, unit,
                       c.per_node);
  };
  std::vector<std::string> notes;
  if (c.device.gpu && c.device.memory > most_memory) notes.push_back(divided("device.memory", c.device.memory / gibi, "GiB"));
  if (c.device.bf16 > most_gemm) notes.push_back(divided("device.bf16", c.device.bf16 / tera, "TFLOP/s"));
  if (c.device.watts > most_watts) notes.push_back(divided("device.watts", c.device.watts, "W"));
  for (const auto& [name, link] : {std::pair("node", c.node), std::pair("network", c.network)})
    if (link.latency > longest || (link.latency > 0 && link.latency < shortest))
      notes.push_back(fmt::format("links.{}.latency is {:g} us, which no link has; is the unit right, as in 5us?", name, link.latency / micro));
  return notes;
}

}  // namespace

std::vector<std::string> doubtful_links(const Cluster& cluster, int ranks) {
  std::vector<std::string> notes;
  constexpr double fastest = 200 * giga;  // of today's networks per device: two adapters of 800 Gb/s
  each_island(cluster, ranks, [&](const Cluster& c, Index here) {
    const std::string where = cluster.parts.empty() ? "the cluster file" : fmt::format("the cluster file of {}", c.name);
    const auto note = [&](const Link& link, const char* name, const char* closer) {
      if (link.assumed)
        notes.push_back(fmt::format(
            "{0} does not set links.{1}.bandwidth: the plan assumes that links between {2} are as fast as those of links.{3} ({4:g} GB/s, "
            "{5:g} us), which is usually too fast; set links.{1}.bandwidth, as in 400Gb/s, and links.{1}.latency",
            where, name, name == std::string_view("network") ? "nodes" : "islands", closer, link.bandwidth / giga, link.latency / micro));
      else if (link.bandwidth > fastest)
        notes.push_back(
            fmt::format("links.{0}.bandwidth of {1} is {2:g} GB/s per device, which is {3:g} Gb/s; write {2:g}Gb/s if Gb/s is meant, and "
                        "divide the bandwidth of a node by its {4} devices",
                        name, where, link.bandwidth / giga, 8 * link.bandwidth / giga, c.per_node));
    };
    if (c.per_node_assumed && here > 1)
      notes.push_back(
          fmt::format("{} does not set device.per_node: the plan assumes one device per node, so that all communication crosses "
                      "links.network; set device.per_node, as in 8",
                      where));
    if (const std::string both = rate_of_both_directions(c.node.bandwidth); c.device.gpu && !both.empty()) notes.push_back(where + ": " + both);
    if (here > c.per_node) note(c.network, "network", "node");
    if (c.island_nodes > 0 && here > c.per_node * c.island_nodes) note(c.islands, "islands", "network");
  });
  return notes;
}

std::vector<std::string> doubtful_devices(const Cluster& cluster) {
  std::vector<std::string> notes;
  constexpr double slowest_memory = 4 * giga, fastest_memory = 50 * tera, fastest_gemm = 20e3 * tera, of_gpu = 60 * tera;
  const auto check = [&](const Cluster& c) {
    const std::string where = cluster.parts.empty() ? "the cluster file" : fmt::format("the cluster file of {}", c.name);
    const double memory = c.device.memory_bandwidth, gemm = c.device.bf16;
    if (memory < slowest_memory || memory > fastest_memory)
      notes.push_back(
          fmt::format("device.memory_bandwidth of {} is {:g} GB/s, which no device has; is the unit right, as in 3.35TB/s?", where, memory / giga));
    if (gemm > fastest_gemm)
      notes.push_back(
          fmt::format("device.bf16 of {} is {:g} TFLOP/s, which no device has; is the unit right, as in 989 TFLOP/s?", where, gemm / tera));
    for (const std::string& note : values_of_nodes(c)) notes.push_back(where + ": " + note);
    if (const std::string sparse = rate_with_sparsity(gemm); !sparse.empty()) notes.push_back(where + ": " + sparse);
    if (gemm < of_gpu || gemm > fastest_gemm) return;
    if (!c.device.gpu) notes.push_back(fmt::format("device.gpu is not true in {}: memory is planned as for a program on a host", where));
    if (c.device.reserve == 0)
      notes.push_back(
          fmt::format("{} does not set device.reserve: nothing is left for the CUDA context, NCCL and cuBLAS, which take some GiB", where));
  };
  if (cluster.parts.empty()) check(cluster);
  for (const Cluster& part : cluster.parts) check(part);
  return notes;
}

Islands islands_of(const Cluster& cluster, int ranks, DType operands) {
  Islands islands;
  each_island(cluster, ranks, [&](const Cluster& c, Index here) {
    const double speed = 1e-12 * c.fit.gemms * c.device.gemm_rate(operands);
    islands.push_back({c.name, int(here), std::stod(fmt::format("{:g}", speed))});  // rounded as the deck prints a speed
  });
  return islands.size() > 1 ? islands : Islands();
}

Cluster read_cluster(const std::string& file) { return read_file(file, Whose::entire_cluster); }

namespace {

Deck described_cluster(Whose whose) {
  Deck deck = Deck::describe();
  read(deck, {}, whose);
  return deck;
}

}  // namespace

std::vector<Declaration> cluster_settings() {
  std::vector<Declaration> all = described_cluster(Whose::entire_cluster).settings();
  for (Declaration& d : all)
    for (const auto& [links, closer] : {std::pair("links.network.", "node"), std::pair("links.islands.", "network")})
      if (d.path.starts_with(links)) d.fallback = fmt::format("as {}", closer);
  return all;
}
std::string cluster_keys() { return described_cluster(Whose::entire_cluster).help(); }

std::string to_yaml(const Cluster& c, const std::string& comment) {
  std::string text;
  for (std::size_t begin = 0; begin < comment.size();) {
    const std::size_t end = std::min(comment.find('\n', begin), comment.size());
    text += "# " + comment.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  text += fmt::format("cluster:\n  name: {}\n  nodes: {}\n  island_nodes: {}\n", write_yaml(c.name), c.nodes, c.island_nodes);
  text += fmt::format(
      "device:\n  per_node: {}\n  memory: {}\n  reserve: {}\n  gpu: {}\n  memory_bandwidth: {}\n  bf16: {}\n  fp32: {}\n  fp64: {}\n  watts: {}\n  "
      "fused: {}\n",
      c.per_node, number(c.device.memory / gibi), number(c.device.reserve / gibi), c.device.gpu, number(c.device.memory_bandwidth / giga),
      number(c.device.bf16 / tera), number(c.device.fp32 / tera), number(c.device.fp64 / tera), number(c.device.watts), c.device.fused);
  if (c.device.price > 0) text += fmt::format("  price: {}\n  currency: {}\n", number(c.device.price), write_yaml(c.device.currency));
  text += fmt::format("host: {{memory: {}, bandwidth: {}, beside: {}}}\n", number(c.host.memory / gibi), number(c.host.bandwidth / giga),
                      c.host.overlaps);
  if (c.storage > 0) text += fmt::format("storage: {{bandwidth: {}}}\n", number(c.storage / giga));
  if (c.failures.hours > 0 || c.failures.restart > 0)
    text += fmt::format("failures: {{hours: {}, restart: {}}}\n", number(c.failures.hours), number(c.failures.restart));
  if (c.errors.largest() > 0)
    text += fmt::format("errors: {{published: {}, published_steps: {}, measured: {}, measured_steps: {}}}\n", number(100 * c.errors.published),
                        write_yaml(c.errors.published_steps), number(100 * c.errors.measured), write_yaml(c.errors.measured_steps));
  text += fmt::format("links:\n  beside: {}\n", c.links_overlap) + link_line("node", c.node);
  for (const auto& [name, link] : {std::pair{"network", &c.network}, {"islands", &c.islands}})
    if (!link->assumed) text += link_line(name, *link);
  return text + fmt::format("fit:\n  products: {}\n  fused: {}\n  memory: {}\n  links: {}\n  step: {}\n", number(c.fit.gemms), number(c.fit.fused),
                            number(c.fit.memory), number(c.fit.links), number(c.fit.step / milli));
}

}  // namespace gyr
