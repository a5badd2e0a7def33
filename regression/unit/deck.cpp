// SPDX-License-Identifier: BSD-3-Clause
// Decks: one declaration serves help, echo and errors; whatever is wrong is refused with its place and the way out.
#include "src/deck/deck.hpp"
#include "regression/testing.hpp"
TEST(deck, x) {
  auto d = gyr::Deck::parse("mamba:\n  chunk: 64\n", "run.yaml");
  auto s = d.section("mamba", "state space");
  gyr::Index c; c = s.get("chunk", 128, "SSD chunk").power_of_two().at_most(512);
  int i; i = s.get("chunk", 128, "SSD chunk").power_of_two().at_most(512);
  double e; e = s.get("eps", 1e-5, "e").positive();
  double e2 = s.get("chunk", 128, "SSD chunk");
  float f = s.get("eps", 1e-5, "e"); 
  std::string n; n = s.get("name", "bf16", "n").one_of({"bf16", "fp32"});
  std::string n2 = s.get("name", "bf16", "n");
  bool b; b = s.get("on", true, "h");
  std::vector<double> v; v = s.get("betas", std::vector<double>{0.9, 0.95}, "h").at_least(0);
  std::vector<double> v2 = s.get<std::vector<double>>("betas", {0.9, 0.95}, "h").at_least(0);
  std::optional<gyr::Index> o; o = s.get<std::optional<gyr::Index>>("opt", std::nullopt, "h").at_least(1);
  std::size_t z = s.get("chunk", 128, "SSD chunk");
  d.finish(); printf("%s%s%d%d%g%g%g%zu", d.effective().c_str(), d.help().c_str(), int(c), i,e,e2,f,z);
}
