#include "harness/config/keys.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <sstream>

#include "harness/config/nearest_word.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/files.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

std::string read_source(const std::string& name) {
  const std::string text = bytes_of(std::string(kSourceDir) + "/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

// "train.seed" for every field of every section struct in config.h.
std::vector<std::string> fields_of_config_h() {
  std::istringstream lines(read_source("harness/config/config.h"));
  std::vector<std::string> paths;
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    std::string third;
    words >> first >> second >> third;
    const size_t suffix = second.rfind("Config");
    if (first == "struct" && suffix != std::string::npos) {
      section = second.substr(0, suffix);
      for (char& c : section) c = static_cast<char>(std::tolower(c));
    } else if (third == "=") {
      paths.push_back(section + "." + second);
    }
  }
  return paths;
}

// A value that `key` allows and that differs from its default.
std::string other_value(const Key& key) {
  const std::string now = value_text(key, Config{});
  if (type_name(key) == "true or false") return now == "true" ? "false" : "true";
  for (const std::string_view word : allowed_words(key)) {
    if ('"' + std::string(word) + '"' != now) return std::string(word);
  }
  if (type_name(key) == "text") return "some \"text\": with \\ # and\ttab";
  if (type_name(key) == "number") return "0.0123456789012345";
  return "8";
}

TEST(ConfigKeys, EveryFieldOfConfigHasOneRowInItsOrder) {
  std::vector<std::string> rows;
  for (const Key& key : config_keys()) rows.emplace_back(key.path);
  EXPECT_EQ(rows, fields_of_config_h());
  EXPECT_EQ(std::set<std::string>(rows.begin(), rows.end()).size(), rows.size());
}

TEST(ConfigKeys, RowsPointAtDifferentFields) {
  Config config;
  std::set<const void*> places;
  for (const Key& key : config_keys()) {
    const auto insert = [&](const auto& field) {
      if constexpr (requires { field.words; }) {
        places.insert(field.field);
      } else {
        places.insert(field);
      }
    };
    std::visit(insert, key.field(config));
  }
  EXPECT_EQ(places.size(), config_keys().size());
}

TEST(ConfigKeys, EveryRowHasASentenceAndADefaultInsideItsBounds) {
  for (const Key& key : config_keys()) {
    EXPECT_GT(key.doc.size(), 15U) << key.path;
    EXPECT_EQ(key.doc.back(), '.') << key.path;
    std::string text = value_text(key, Config{});
    if (type_name(key) == "text") text = text.substr(1, text.size() - 2);
    EXPECT_NO_THROW(test::load_settings({}, {std::string(key.path) + "=" + text})) << key.path;
  }
}

TEST(ConfigKeys, ToYamlLoadsBackEqual) {
  std::vector<std::string> overrides;
  for (const Key& key : config_keys()) {
    const std::string value =
        key.path == "optimizer.initial_loss_scale" ? "1.25" : other_value(key);
    overrides.push_back(std::string(key.path) + "=" + value);
  }
  const Config config = test::load_settings({}, overrides).config;
  for (const Key& key : config_keys()) {
    EXPECT_NE(value_text(key, config), value_text(key, Config{})) << key.path;
  }
  const TempFolder folder;
  const LoadedConfig again = test::load_settings({folder.write("all.yaml", to_yaml(config))});
  for (const Key& key : config_keys()) {
    EXPECT_EQ(value_text(key, again.config), value_text(key, config)) << key.path;
    EXPECT_NE(again.origins.at(std::string(key.path)), kDefaultOrigin) << key.path;
  }
  const LoadedConfig annotated =
      test::load_settings({folder.write("annotated.yaml", to_yaml_with_origins(again))});
  EXPECT_EQ(to_yaml(annotated.config), to_yaml(config)) << "comments change nothing";
}

TEST(ConfigKeys, NumbersKeepEveryBit) {
  for (const double value : {0.1, 1.0 / 3, 4.25e-4, 1e-12, 0.60466, 0.99999999999999989}) {
    Config config;
    config.optimizer.beta_1 = value;
    const TempFolder folder;
    const Config again = test::load_settings({folder.write("a.yaml", to_yaml(config))}).config;
    EXPECT_EQ(again.optimizer.beta_1, value);
  }
}

TEST(ConfigKeys, TheReadmeOfConfigsHoldsTheGeneratedTable) {
  EXPECT_THAT(read_source("configs/README.md"), HasSubstr(key_table_markdown()))
      << "run: build/release/bertha config show --doc, and paste the table";
}

TEST(NearestWord, FindsTyposAndPartsAndGivesUpOnStrangers) {
  const std::vector<std::string> words{"train", "eval", "data", "plan", "checkpoint"};
  EXPECT_EQ(nearest_word("tarin", words), "train");
  EXPECT_EQ(nearest_word("trian", words), "train");
  EXPECT_EQ(nearest_word("checkpiont", words), "checkpoint");
  EXPECT_EQ(nearest_word("check", words), "checkpoint");
  EXPECT_EQ(nearest_word("zebra", words), "");
  EXPECT_EQ(nearest_word("", words), "");
  EXPECT_EQ(nearest_word("x", words), "");
}

}  // namespace
}  // namespace bertha
