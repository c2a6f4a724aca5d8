// Serves made-up rounds, one for each line of standard input: draftscope's own tests read them. No llama.cpp is needed.
#include "../sender.h"

#include <cstdio>
#include <iostream>

int main(int, char ** arguments) {
    Sender sender;
    const std::string failed = sender.start(arguments[1], [](int32_t id) -> std::pair<std::string, bool> {
        if (id == 2) {
            return {"<|im_end|>", true};
        }
        if (id == 3) {
            return {"\xC3", false};  // a part of a character
        }
        return {id == 4 ? "\"\\\n\x7F" : "é" + std::to_string(id), false};
    });
    if (!failed.empty()) {
        std::cerr << failed << "\n";
        return 1;
    }
    sender.describe({"model \"quoted\"", "draft", 50, 64, "rejection"});
    std::cout << "LISTENING" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        if (line == "many") {
            for (int i = 0; i < 5000; i++) {
                sender.put(Step{"r", {5}, {5, 6}, {{{5, 0.9f}}, {{6, 0.5f}}}, {0.9f}, {}, 0, 0, 0});
            }
            continue;
        }
        sender.put(Step{"request-1", {3, 4, 9}, {3, 7}, {{{3, 0.75f}, {4, 0.25f}}, {{7, 0.5f}, {4, 0.125f}}, {{1, 1.0f}}, {{2, 0.5f}}},
                        {0.75f, 0.125f, 0.0f}, {0.5f, 1.0f, 1.0f}, 30, 20, 10});
        sender.put(Step{"request-1", {}, {2}, {{{2, 1.0f}}}, {}, {}, 0, 20, 10});
        sender.put(Step{"request-2", {5}, {5, 6}, {}, {}, {}, 0, 0, 0});  // sampled on the backend: no rows
    }
}
