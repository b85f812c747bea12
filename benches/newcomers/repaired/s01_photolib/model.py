from torch import nn


def block(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


class SceneNet(nn.Module):
    def __init__(self, n_classes, width=24):
        super().__init__()
        self.body = nn.Sequential(
            block(3, width), block(width, width * 2, 2), block(width * 2, width * 2),
            block(width * 2, width * 4, 2), block(width * 4, width * 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Linear(width * 4, n_classes)

    def forward(self, x):
        return self.head(self.body(x))
