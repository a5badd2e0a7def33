// SPDX-License-Identifier: BSD-3-Clause
#include "src/selftest/findings.hpp"

#include "kernels/base/error.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr::selftest {

Json json_of(const Findings& f) {
  Json sums = Json::object(), exchanges = Json::array();
  for (std::size_t i = 0; i < precisions.size(); ++i) sums[precisions[i]] = hex(f.sums[i]);
  for (const Exchange& e : f.exchanges) exchanges.push_back({{"partner", e.partner}, {"right", e.right}, {"seconds", e.seconds}});
  return {{"host", f.host},
          {"processor", f.processor},
          {"place", f.place},
          {"memory_right", f.memory_right},
          {"repeats", f.repeats},
          {"collectives_right", f.collectives_right},
          {"file_right", f.file_right},
          {"sums", sums},
          {"memory_rate", f.memory_rate},
          {"gemm_rate", f.gemm_rate},
          {"file_rate", f.file_rate},
          {"exchanges", exchanges}};
}

Findings findings_in(const Json& json, const std::string& origin) {
  Findings f;
  try {
    f.host = json.at("host"), f.processor = json.at("processor"), f.place = json.at("place");
    f.memory_right = json.at("memory_right"), f.repeats = json.at("repeats");
    f.collectives_right = json.at("collectives_right"), f.file_right = json.at("file_right");
    for (std::size_t i = 0; i < precisions.size(); ++i) f.sums[i] = sum_of_hex(json.at("sums").at(precisions[i]), origin);
    f.memory_rate = json.at("memory_rate"), f.gemm_rate = json.at("gemm_rate"), f.file_rate = json.at("file_rate");
    for (const Json& e : json.at("exchanges")) f.exchanges.push_back({e.at("partner"), e.at("right"), e.at("seconds")});
  } catch (const nlohmann::json::exception& error) {
    fail(Exit::data, "{}: is not a file of gyrfalcon selftest --out: {}", origin, error.what());
  }
  return f;
}

}  // namespace gyr::selftest
