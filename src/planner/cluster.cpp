// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/cluster.hpp"

#include <filesystem>

#include "src/base/limits.hpp"

namespace gyr {

namespace {

constexpr double giga = 1e9, tera = 1e12, milli = 1e-3, micro = 1e-6, gibi = double(1 << 30);
constexpr double most = 1e9;  // of any number in the unit of its key

// `usual`: where nothing is said; null: it must be.
Link read_link(Section& links, const char* name, const char* help, const Link* usual) {
  Section& s = links.section(name, help);
  const char *const of_bandwidth = "of one device in one direction, its neighbours busy too", *const key = "bandwidth";
  Link link;
  link.latency = micro * s.get("latency", usual ? usual->latency / micro : 0.0, "of a message").unit("us").at_least(0).at_most(most).value();
  auto bandwidth = usual ? s.get(key, usual->bandwidth / giga, of_bandwidth) : s.need<double>(key, of_bandwidth);
  link.bandwidth = giga * bandwidth.unit("GB/s").positive().at_most(most).value();
  return link;
}

void read_device(Section& s, Cluster& c) {
  c.per_node = s.get("per_node", 1, "devices of a node; each is a rank's").positive().at_most(most_axis);
  c.device.memory = gibi * s.need<double>("memory", "of a device").unit("GiB").positive().at_most(most).value();
  c.device.memory_bandwidth = giga * s.need<double>("memory_bandwidth", "of a device").unit("GB/s").positive().at_most(most).value();
  c.device.bf16 = tera * s.need<double>("bf16", "peak rate of matrix products in bf16").unit("TFLOP/s").positive().at_most(most).value();
  c.device.fp32 = tera * s.need<double>("fp32", "... in fp32").unit("TFLOP/s").positive().at_most(most).value();
  c.device.fp64 = tera * s.need<double>("fp64", "... in fp64").unit("TFLOP/s").positive().at_most(most).value();
  c.device.watts = s.get("watts", 0.0, "that a device draws while it computes; 0: not known").at_least(0).at_most(most).value();
  c.device.fused = s.get("fused", false, "tiles of attention stay on the chip and cost no memory's bandwidth");
}

void read_fit(Section& s, Cluster& c) {
  const auto part = [&](const char* key, const char* help) { return s.get(key, 1.0, help).above(0).at_most(2).value(); };
  c.fit.products = part("products", "part of the peak that large matrix products reach");
  c.fit.fused = part("fused", "part of the peak that products inside attention and scan reach");
  c.fit.memory = part("memory", "part of the bandwidth that passes over memory reach");
  c.fit.links = part("links", "part of the links' bandwidth that transfers reach");
  c.fit.step = milli * s.get("step", 0.0, "what a step costs besides").unit("ms").at_least(0).at_most(most).value();
}

Cluster read(Deck& deck) {
  Cluster c;
  Section& s = deck.section("cluster", "nodes and islands of them");
  c.name = s.get("name", "", "for people").value();
  c.nodes = s.get("nodes", 0, "0: as many as a run asks for").at_least(0).at_most(most_ranks);
  c.island_nodes = s.get("island_nodes", 0, "nodes that share a network; 0: all").at_least(0).at_most(most_ranks);
  read_device(deck.section("device", "what one rank computes on"), c);
  Section& links = deck.section("links", "between devices");
  c.node = read_link(links, "node", "of the same node", nullptr);
  c.network = read_link(links, "network", "of different nodes", &c.node);
  c.islands = read_link(links, "islands", "of nodes of different islands", &c.network);
  read_fit(deck.section("fit", "fitted to measured steps"), c);
  return c;
}

std::string number(double x) { return fmt::format("{:.6g}", x); }

std::string link_line(const char* name, const Link& link) {
  return fmt::format("  {}: {{latency: {}, bandwidth: {}}}\n", name, number(link.latency / micro), number(link.bandwidth / giga));
}

}  // namespace

double Cluster::Device::product_rate(DType operands) const { return operands == DType::bf16 ? bf16 : operands == DType::f32 ? fp32 : fp64; }

Cluster read_cluster(const std::string& file) {
  std::error_code no;
  require(std::filesystem::exists(file, no), Exit::missing,
          "{}: there is no such description of a cluster; see input/clusters/, or let gyrfalcon "
          "probe write one",
          file);
  Deck deck = Deck::read(file);
  const Cluster c = read(deck);
  deck.finish();
  return c;
}

std::string cluster_keys() {
  Deck deck = Deck::describe();
  read(deck);
  return deck.help();
}

std::string to_yaml(const Cluster& c, const std::string& comment) {
  std::string text;
  for (std::size_t begin = 0; begin < comment.size();) {
    const std::size_t end = std::min(comment.find('\n', begin), comment.size());
    text += "# " + comment.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  text += fmt::format("cluster:\n  name: {}\n  nodes: {}\n  island_nodes: {}\n", write_yaml(c.name), c.nodes, c.island_nodes);
  text += fmt::format("device:\n  per_node: {}\n  memory: {}\n  memory_bandwidth: {}\n  bf16: {}\n  fp32: {}\n  fp64: {}\n  watts: {}\n  fused: {}\n",
                      c.per_node, number(c.device.memory / gibi), number(c.device.memory_bandwidth / giga), number(c.device.bf16 / tera),
                      number(c.device.fp32 / tera), number(c.device.fp64 / tera), number(c.device.watts), c.device.fused);
  text += "links:\n" + link_line("node", c.node) + link_line("network", c.network) + link_line("islands", c.islands);
  return text + fmt::format("fit:\n  products: {}\n  fused: {}\n  memory: {}\n  links: {}\n  step: {}\n", number(c.fit.products), number(c.fit.fused),
                            number(c.fit.memory), number(c.fit.links), number(c.fit.step / milli));
}

}  // namespace gyr
